# BANTAM_STATIC_DEPENDENCIES: a program for every machine with the same libc, or a later one: third-party libraries and the compiler's
# runtime are linked as archives ({fmt}, of which Debian has none, is compiled from its headers). scripts/dist.sh packs that program.
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
    # The compiler knows its own folder and the system's; it returns the name alone of an archive that it does not find.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${_archive} OUTPUT_VARIABLE _path OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${_path}")
      message(FATAL_ERROR "BANTAM_STATIC_DEPENDENCIES=ON: no archive ${_archive}, which ${target} needs "
                          "(scripts/dist.sh names Debian's packages)")
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
  get_target_property(_others ${target} INTERFACE_LINK_LIBRARIES)
  list(FILTER _others EXCLUDE REGEX "[.]so$|NOTFOUND$")  # an archive stands for it
  set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES ${_others} ${_paths})
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

if(TARGET bantam)
  # The map tells scripts/dist.sh whose archives are in the program, and thus whose licences go with it.
  set_target_properties(bantam PROPERTIES SKIP_BUILD_RPATH ON)
  target_link_options(bantam PRIVATE -static-libstdc++ -static-libgcc -Wl,-Map=${PROJECT_BINARY_DIR}/bantam.map
    -Wl,--gc-sections -Wl,-z,pack-relative-relocs)  # relocations in a tenth of the bytes, as glibc reads them from 2.36 on
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND BANTAM_CPU_ARCH MATCHES "^x86-64-v[234]$")
    target_link_options(bantam PRIVATE -Wl,-z,${BANTAM_CPU_ARCH})  # the loader refuses an older processor, by a message
  endif()
endif()

# Libraries whose code a step or a search waits for are compiled for speed, as in other builds; the others for size.
set(_for_speed bantam_packing bantam_memory bantam_kernels bantam_data)
set(_for_size bantam_base bantam_engine bantam_models bantam_run bantam_cli bantam)
foreach(_target ${_for_speed} ${_for_size})
  if(TARGET ${_target})
    target_compile_options(${_target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections -fdata-sections>)
    if(_target IN_LIST _for_size)
      target_compile_options(${_target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Os>)
    endif()
  endif()
endforeach()
