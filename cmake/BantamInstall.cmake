# Installs what a program needs, for find_package(bantam) and for pkg-config, and the program, in four components: library (libbantam.so, libbantam_pool.so),
# development (headers, libbantam.a, package files), program and documentation.
include(CMakePackageConfigHelpers)
get_property(_floors GLOBAL PROPERTY BANTAM_LIBRARIES)
get_property(_linked GLOBAL PROPERTY BANTAM_LINKED)
set(_lib ${CMAKE_INSTALL_LIBDIR})

if(TARGET bantam_shared)  # where it was built for the tests alone: only by `cmake --install … --component library`
  set(_how NAMELINK_COMPONENT development)
  if(NOT BANTAM_SHARED)
    set(_how EXCLUDE_FROM_ALL)
  endif()
  if(BANTAM_SHARED AND TARGET bantam)  # `make install` builds the program and what it needs
    add_dependencies(bantam bantam_shared)
  endif()
  install(TARGETS bantam_shared LIBRARY DESTINATION ${_lib} COMPONENT library ${_how})
endif()
if(TARGET bantam)  # what is installed with the program, and that does not link
  add_dependencies(bantam bantam_capi)
  if(NOT BANTAM_STATIC_DEPENDENCIES)
    add_dependencies(bantam bantam_pool_library)
  endif()
endif()
list(TRANSFORM _floors REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE _archives)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DARCHIVES=${_archives}\" -DWORK=${PROJECT_BINARY_DIR}/joined
    \"-DOUTPUT=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${_lib}/libbantam.a\"
    -DLINKER=${CMAKE_LINKER} -DSTRIP=${CMAKE_STRIP} -DAR=${CMAKE_AR} -P \"${CMAKE_CURRENT_LIST_DIR}/join_archives.cmake\"
    COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/${_lib}/libbantam.a\")" COMPONENT development)
foreach(_header ${BANTAM_PUBLIC_HEADERS})
  get_filename_component(_folder ${_header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${_header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bantam/${_folder} COMPONENT development)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/bantam_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bantam COMPONENT development)

# What libbantam.a is linked with: of each library that a floor names, its name, the folder where it was found, and Debian's package.
set(_externals "")
set(_flags "")
macro(bantam_external target library package)
  if("${target}" IN_LIST _linked)
    find_library(_file ${library} HINTS ${ARGN} NO_CACHE)
    get_filename_component(_folder "${_file}" DIRECTORY)
    string(APPEND _externals "\n    ${library} \"${_folder}\" ${package}")
    string(APPEND _flags " -l${library}")
    unset(_file)
  endif()
endmacro()
bantam_external(DNNL::dnnl dnnl libdnnl-dev)
bantam_external(LibArchive::LibArchive archive libarchive-dev)
bantam_external(JPEG::JPEG jpeg libjpeg-dev)
bantam_external(PNG::PNG png libpng-dev)
bantam_external(WebP::webpdemux webpdemux libwebp-dev)
bantam_external(WebP::webpdemux webp libwebp-dev)
bantam_external(GIF::GIF gif libgif-dev)
bantam_external(TIFF::TIFF tiff libtiff-dev)
bantam_external(ZLIB::ZLIB z zlib1g-dev)
bantam_external(yaml-cpp yaml-cpp libyaml-cpp-dev)
bantam_external(fmt::fmt fmt libfmt-dev)
if("OpenMP::OpenMP_CXX" IN_LIST _linked)  # the library of the compiler's OpenMP: programs need no OpenMP of their own
  list(GET OpenMP_CXX_LIB_NAMES 0 _openmp)
  get_filename_component(_folder "${OpenMP_${_openmp}_LIBRARY}" DIRECTORY)
  bantam_external(OpenMP::OpenMP_CXX ${_openmp} g++ ${_folder})
endif()
string(APPEND _flags " -pthread -ldl -lstdc++ -lm")  # the latter two for C programs, which a C compiler links
if(BANTAM_WITH_CUDA)  # the CUDA runtime lies beside the library that was built with it: whoever links that needs no toolkit
  get_target_property(_cudart CUDA::cudart_static IMPORTED_LOCATION)
  install(FILES ${_cudart} DESTINATION ${_lib}/bantam RENAME libcudart_static.a COMPONENT development)
  string(PREPEND _flags " \${libdir}/bantam/libcudart_static.a")
  string(APPEND _flags " -lrt")
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/bantamConfig.cmake.in
  ${PROJECT_BINARY_DIR}/bantamConfig.cmake INSTALL_DESTINATION ${_lib}/cmake/bantam
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bantamConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bantamConfig.cmake ${PROJECT_BINARY_DIR}/bantamConfigVersion.cmake
  DESTINATION ${_lib}/cmake/bantam COMPONENT development)
file(RELATIVE_PATH _prefix /${_lib}/pkgconfig /)
string(REGEX REPLACE "/$" "" _prefix ${_prefix})
if(BANTAM_SHARED)
  set(_libs "")
  set(_libs_private "${_flags} -Wl,--exclude-libs,libbantam.a")
else()
  set(_libs "${_flags} -Wl,--exclude-libs,libbantam.a")
  set(_libs_private "")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/bantam.pc.in ${PROJECT_BINARY_DIR}/bantam.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bantam.pc DESTINATION ${_lib}/pkgconfig COMPONENT development)

# The pages with what they link to, in the same places beside each other. Debian's packages and the archive bring their own.
foreach(_file CHANGELOG.md LICENSE README.md)
  install(FILES ${PROJECT_SOURCE_DIR}/${_file} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT documentation
  FILES_MATCHING PATTERN "*.md")
file(GLOB_RECURSE _notes RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/kernels/README.md
  ${PROJECT_SOURCE_DIR}/benchmarks/README.md ${PROJECT_SOURCE_DIR}/benchmarks/torch_in_bantam.py)
foreach(_file ${_notes})
  get_filename_component(_folder ${_file} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${_file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${_folder} COMPONENT documentation)
endforeach()
foreach(_folder configs examples)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${_folder} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
endforeach()

if(TARGET bantam)
  install(TARGETS bantam RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # Completion for shells, written by the program that is installed, each where its shell looks for it.
  set(_completion ${PROJECT_BINARY_DIR}/completion)
  file(MAKE_DIRECTORY ${_completion})
  function(bantam_install_completion shell file folder)
    install(CODE "execute_process(COMMAND \"$<TARGET_FILE:bantam>\" completion ${shell} OUTPUT_FILE \"${_completion}/${file}\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT program)
    install(FILES ${_completion}/${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT program)
  endfunction()
  bantam_install_completion(bash bantam bash-completion/completions)
  bantam_install_completion(zsh _bantam zsh/site-functions)
  bantam_install_completion(fish bantam.fish fish/vendor_completions.d)
endif()
