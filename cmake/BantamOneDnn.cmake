# oneDNN, where the build wants it: convolutions on the CPU are ours without it, and nothing needs OpenMP. Sets BANTAM_WITH_ONEDNN.
set(BANTAM_ONEDNN AUTO CACHE STRING
    "oneDNN for those convolutions on the CPU that it computes faster than our own kernels: AUTO (where it is found), ON or OFF")
set(BANTAM_WITH_ONEDNN OFF)
set(BANTAM_ONEDNN_LIBRARIES "")
if(BANTAM_ONEDNN)
  find_package(dnnl QUIET)
  find_package(OpenMP QUIET COMPONENTS CXX)  # oneDNN's threads, which we set to one
  if(TARGET DNNL::dnnl AND TARGET OpenMP::OpenMP_CXX)
    set(BANTAM_WITH_ONEDNN ON)
    set(BANTAM_ONEDNN_LIBRARIES DNNL::dnnl OpenMP::OpenMP_CXX)
  elseif(NOT BANTAM_ONEDNN STREQUAL "AUTO")
    message(FATAL_ERROR "BANTAM_ONEDNN=ON: oneDNN (Debian: libdnnl-dev) or the compiler's OpenMP was not found. "
                        "-DBANTAM_ONEDNN=OFF builds without them: Bantam's own convolutions stand in.")
  endif()
endif()
message(STATUS "Bantam: oneDNN ${BANTAM_WITH_ONEDNN}")
