# Language level, build type, warnings, sanitizers and the CPU architecture, for every target of the project. Below a parent project
# (add_subdirectory, FetchContent) its flags, build type and compiler launcher hold.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # asserts stay on: they are cheap beside a training step

  find_program(BANTAM_CCACHE ccache)
  if(BANTAM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${BANTAM_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${BANTAM_CCACHE})
  endif()
endif()

add_library(bantam_options INTERFACE)
target_compile_options(bantam_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers>)
if(BANTAM_WERROR)
  target_compile_options(bantam_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(NOT PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)  # a parent without a build type means its own code
  target_compile_options(bantam_options INTERFACE -O2)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND BANTAM_CPU_ARCH)
  target_compile_options(bantam_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${BANTAM_CPU_ARCH}>)
endif()
if(BANTAM_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${BANTAM_SANITIZE}")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${_sanitizers}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer> $<$<COMPILE_LANGUAGE:CXX>:-g1>)
  # GCC 12 takes members of <regex> for uninitialised where a sanitizer is on.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  if(BANTAM_SANITIZE MATCHES "undefined")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
  add_link_options(-fsanitize=${_sanitizers})
endif()

# bantam_library(name [LEAVE_OUT REGEX] [ALONE REGEX] DEPENDS ...): the static library of a level, of the sources in its folder that LEAVE_OUT
# does not match. Includes are spelled "bantam/<level>/<folder>/<file>.h". Its objects also are what the shared library consists of
# (BantamLibrary.cmake), and hide what public headers do not declare.
# ALONE matches sources that compile one by one (BantamUnity.cmake): they have flags of their own, or names that their neighbours have, too.
function(bantam_library name)
  cmake_parse_arguments(ARG "" "LEAVE_OUT;ALONE" "DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  if(ARG_LEAVE_OUT)
    list(FILTER sources EXCLUDE REGEX "${ARG_LEAVE_OUT}")
  endif()
  set(alone "")
  if(ARG_ALONE)
    set(alone ${sources})
    list(FILTER alone INCLUDE REGEX "${ARG_ALONE}")
    list(FILTER sources EXCLUDE REGEX "${ARG_ALONE}")
  endif()
  bantam_unity(sources ${name} ${sources})
  add_library(bantam_${name} STATIC ${sources} ${alone})
  bantam_unity_options(bantam_${name})
  add_library(bantam::${name} ALIAS bantam_${name})
  set_target_properties(bantam_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(bantam_${name} PUBLIC ${PROJECT_BINARY_DIR}/include)
  target_compile_features(bantam_${name} PUBLIC cxx_std_20)
  target_link_libraries(bantam_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS} bantam_options)
  set_property(GLOBAL APPEND PROPERTY BANTAM_LIBRARIES bantam_${name})
  set_property(GLOBAL APPEND PROPERTY BANTAM_LINKED ${ARG_DEPENDS} ${ARG_PRIVATE_DEPENDS})
endfunction()
