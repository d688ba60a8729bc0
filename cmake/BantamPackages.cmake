# BANTAM_STATIC_DEPENDENCIES: a program for every machine with the same libc, or a later one: third-party libraries and the compiler's
# runtime are linked as archives, and most of the program is compiled for size. scripts/dist.sh packs that program.
if(NOT BANTAM_STATIC_DEPENDENCIES)
  return()
endif()
if(BANTAM_SANITIZE)
  message(FATAL_ERROR "BANTAM_STATIC_DEPENDENCIES=ON: sanitizers come as shared libraries; build without BANTAM_SANITIZE")
endif()

# bantam_link_archives(target archive…): what links the imported `target` is given these archives, in this order.
function(bantam_link_archives target)
  if(NOT TARGET ${target})
    return()
  endif()
  set(_paths "")
  foreach(_archive ${ARGN})
    if(IS_ABSOLUTE ${_archive})
      set(_path ${_archive})
    else()  # the compiler knows its own folder and the system's; of what it does not find it returns the name
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${_archive} OUTPUT_VARIABLE _path OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(NOT IS_ABSOLUTE "${_path}")
        message(FATAL_ERROR "BANTAM_STATIC_DEPENDENCIES=ON: no archive ${_archive}, which ${target} needs "
                            "(scripts/dist.sh names Debian's packages)")
      endif()
    endif()
    get_filename_component(_path ${_path} REALPATH)
    list(APPEND _paths ${_path})
  endforeach()
  list(POP_FRONT _paths _first)
  get_target_property(_configurations ${target} IMPORTED_CONFIGURATIONS)
  get_target_property(_type ${target} TYPE)
  if(_type STREQUAL "INTERFACE_LIBRARY")  # as FindOpenMP's: its libraries are all it links
    set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES ${_first} ${_paths} Threads::Threads)
    return()
  endif()
  foreach(_configuration ${_configurations})
    if(_configuration)
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${_configuration} ${_first})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${_first})
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${_paths})
endfunction()
bantam_link_archives(yaml-cpp libyaml-cpp.a)
bantam_link_archives(ZLIB::ZLIB libz.a)
bantam_link_archives(JPEG::JPEG libjpeg.a)
bantam_link_archives(PNG::PNG libpng16.a)
if(BANTAM_WITH_TIFF)  # libtiff's archive needs encoders of JPEG, Zstandard and LZMA, and five more libraries
  message(FATAL_ERROR "BANTAM_STATIC_DEPENDENCIES=ON is without TIFF files: build with -DBANTAM_TIFF=OFF")
endif()
bantam_link_archives(WebP::webpdemux libwebpdemux.a libwebp.a)
bantam_link_archives(GIF::GIF libgif.a)
bantam_link_archives(LibArchive::LibArchive libarchive.a liblzma.a libzstd.a libbz2.a libz.a)
bantam_link_archives(OpenMP::OpenMP_CXX libgomp.a)
# Debian has {fmt} as a shared library alone: its functions are compiled from its headers.
add_library(bantam_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt_functions.cpp)
get_target_property(_fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(bantam_fmt SYSTEM PRIVATE ${_fmt_headers})
set_target_properties(bantam_fmt PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} POSITION_INDEPENDENT_CODE ON
  CXX_STANDARD 20)
target_compile_options(bantam_fmt PRIVATE $<$<CONFIG:Release>:-Os -ffunction-sections -fdata-sections>)
bantam_link_archives(fmt::fmt ${PROJECT_BINARY_DIR}/libbantam_fmt.a)
add_dependencies(fmt::fmt bantam_fmt)

# Code of archives that is linked because one object refers to all of it, and that never runs here: 260 KB. Its symbols stand for
# functions of left_out_code.cpp, so that the linker takes none of the objects.
# bantam_leave_out(target archive objects stand_in): `objects` is a regular expression for their names.
function(bantam_leave_out target archive objects stand_in)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${archive} OUTPUT_VARIABLE _path OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_NM} -g --defined-only ${_path} OUTPUT_VARIABLE _listed RESULT_VARIABLE _failed ERROR_QUIET)
  if(_failed)
    return()  # a larger program, and no other difference
  endif()
  string(REPLACE "\n" ";" _listed "${_listed}")
  set(_inside FALSE)
  foreach(_line IN LISTS _listed)
    if(_line MATCHES "[.]o:$")
      string(REGEX MATCH "^(${objects})[.]o:$" _inside "${_line}")
    elseif(_inside AND _line MATCHES " [A-Z] ([A-Za-z0-9_]+)$")
      target_link_options(${target} PRIVATE -Wl,--defsym=${CMAKE_MATCH_1}=${stand_in})
    endif()
  endforeach()
endfunction()

if(TARGET bantam)
  target_sources(bantam PRIVATE ${PROJECT_SOURCE_DIR}/cmake/left_out_code.cpp)
  # The encoders of JPEG and bzip2: scripts/dist.sh checks that nothing calls them.
  bantam_leave_out(bantam libjpeg.a "(jccolor|jcgray|jchuff|jcphuff|jcsample|jfdctflt|jfdctfst|jfdctint|jquantf|jquanti)-[a-z0-9]+[.]asm"
    bantam_left_out_code)
  bantam_leave_out(bantam libbz2.a "compress|blocksort" bantam_left_out_code)
  # Zstandard before version 0.8 (2016): such a file is refused, as where there is no memory for it.
  bantam_leave_out(bantam libzstd.a "zstd_v0[0-9]" bantam_left_out_format)
  # The map tells scripts/dist.sh whose archives are in the program, and thus whose licences go with it.
  set_target_properties(bantam PROPERTIES SKIP_BUILD_RPATH ON)
  target_link_options(bantam PRIVATE -static-libstdc++ -static-libgcc -Wl,-Map=${PROJECT_BINARY_DIR}/bantam.map
    -Wl,--gc-sections -Wl,-z,pack-relative-relocs)  # relocations in a tenth of the bytes, as glibc reads them from 2.36 on
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND BANTAM_CPU_ARCH MATCHES "^x86-64-v[234]$")
    target_link_options(bantam PRIVATE -Wl,-z,${BANTAM_CPU_ARCH})  # the loader refuses an older processor, by a message
  endif()
endif()

# For size is compiled what no step waits for. For speed as ever: kernels, allocators, the planner's search, samples on their way.
set(_for_speed "^(cuda|images|augment|allocator|pages)/|^(checksum|parallel|boxes|ejection|placement|search)[.]cpp$"
  "|^pipeline/(batch_plan|epoch_order)[.]|^delivery/(batch_mixer|direct_delivery|encoded_cache|sample_gather|sample_path)[.]")
string(CONCAT _for_speed ${_for_speed})
set(_kernels_for_size "^libraries[.]cpp$|/([a-z_]+_)?work[.]cpp$")  # handles, and what notes the work of a call
# IPA-SRA makes local copies of shared template instances, in every object that has one: without them the linker keeps one for all.
set(_one_copy -ffunction-sections -fdata-sections $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-ipa-sra>)
set(_small -Oz)
set(_fast -O2)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # passes that run at -Oz, too, although they make code and unwind tables larger (1 %)
  list(APPEND _small -fno-gcse -fno-tree-pre -fno-reorder-blocks-and-partition)
  list(APPEND _fast -fgcse -ftree-pre -freorder-blocks-and-partition)
endif()
foreach(_target bantam_base bantam_packing bantam_memory bantam_kernels bantam_engine bantam_data bantam_models bantam_run bantam_cli bantam)
  if(NOT TARGET ${_target})
    continue()
  endif()
  target_compile_options(${_target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${_small} ${_one_copy}>)
  # Our sources have no assert(); those of header-only libraries, nlohmann's above all, carry their texts and every instance's name.
  target_compile_definitions(${_target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:NDEBUG>)
  get_target_property(_sources ${_target} SOURCES)
  if(_target STREQUAL "bantam_kernels")
    list(FILTER _sources INCLUDE REGEX "[.]cpp$")
    list(FILTER _sources EXCLUDE REGEX "${_kernels_for_size}")
  else()
    list(FILTER _sources INCLUDE REGEX "${_for_speed}")
  endif()
  get_target_property(_folder ${_target} SOURCE_DIR)
  list(TRANSFORM _sources PREPEND "${_folder}/")
  list(FILTER _sources EXCLUDE REGEX "[.]cu$")
  if(_sources AND NOT _target STREQUAL "bantam_cli")  # whose pages/ are those of reports
    set_source_files_properties(${_sources} TARGET_DIRECTORY ${_target} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:${_fast}>")
  endif()
endforeach()
