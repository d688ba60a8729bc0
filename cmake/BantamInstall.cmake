# Installs headers, libraries and a CMake package, so that find_package(bantam) works.
include(CMakePackageConfigHelpers)
get_property(_libraries GLOBAL PROPERTY BANTAM_LIBRARIES)
install(TARGETS ${_libraries} EXPORT bantamTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(floor base packing memory kernels engine data models run)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${floor} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bantam FILES_MATCHING
    PATTERN "*.h" PATTERN "cuda" EXCLUDE PATTERN "no_cuda" EXCLUDE PATTERN "cpu" EXCLUDE PATTERN "reference" EXCLUDE PATTERN "tiling" EXCLUDE
    PATTERN "meta" EXCLUDE)
endforeach()
install(EXPORT bantamTargets NAMESPACE bantam:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bantam)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/bantamConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/bantamConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bantam)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/bantamConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/bantamConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/bantamConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bantam)
if(BANTAM_WITH_CUDA)
  get_target_property(_cudart CUDA::cudart_static IMPORTED_LOCATION)
  install(FILES ${_cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR}/bantam RENAME libcudart_static.a)
endif()
if(TARGET bantam)
  install(TARGETS bantam RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
