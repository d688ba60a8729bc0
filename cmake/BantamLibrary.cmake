# What programs link: bantam::bantam, all floors with the installed headers alone, static or (BANTAM_SHARED) libbantam.so. The targets of
# floors are for this project's own programs and tests, which include all headers.
include(PublicHeaders)
get_property(_floors GLOBAL PROPERTY BANTAM_LIBRARIES)
foreach(_header ${BANTAM_PUBLIC_HEADERS} bantam_c.h)
  get_filename_component(_folder ${_header} DIRECTORY)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/public/bantam/${_folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${_header} ${PROJECT_BINARY_DIR}/public/bantam/${_header} SYMBOLIC)
endforeach()

add_library(bantam_static INTERFACE)
target_link_libraries(bantam_static INTERFACE "$<LINK_ONLY:${_floors}>")
set(_library bantam_static)
if(BANTAM_SHARED OR BANTAM_TESTS)  # the tests link programs with it in any case
  list(TRANSFORM _floors REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE _objects)
  get_property(_object_libraries GLOBAL PROPERTY BANTAM_OBJECT_LIBRARIES)
  list(TRANSFORM _object_libraries REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  add_library(bantam_shared SHARED ${_objects} ${_object_libraries})
  target_link_libraries(bantam_shared PRIVATE ${_floors})  # for the libraries that they name: their own objects are there
  set(_symbols ${CMAKE_CURRENT_LIST_DIR}/exported_symbols.map)
  set_target_properties(bantam_shared PROPERTIES OUTPUT_NAME bantam LINKER_LANGUAGE CXX LINK_DEPENDS ${_symbols}
    VERSION ${BANTAM_SOVERSION}.${PROJECT_VERSION_MINOR}.${PROJECT_VERSION_PATCH} SOVERSION ${BANTAM_SOVERSION})
  # --gc-sections: what only the program bantam calls, reports and benches, is not in the library.
  target_link_options(bantam_shared PRIVATE LINKER:--version-script=${_symbols} LINKER:-Bsymbolic-functions LINKER:--as-needed
    LINKER:--gc-sections)
  if(NOT BANTAM_SANITIZE)  # whose functions are the program's
    target_link_options(bantam_shared PRIVATE LINKER:-z,defs)
  endif()
  if(BANTAM_SHARED)
    set(_library bantam_shared)
  endif()
endif()
target_include_directories(${_library} INTERFACE ${PROJECT_BINARY_DIR}/public)
target_compile_features(${_library} INTERFACE cxx_std_20)
add_library(bantam::bantam ALIAS ${_library})
