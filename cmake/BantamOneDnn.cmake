# oneDNN, where the build wants it: convolutions on the CPU are ours without it, and nothing needs OpenMP.
option(BANTAM_ONEDNN "Use oneDNN for those convolutions on the CPU that it computes faster than our own kernels" ON)
set(BANTAM_ONEDNN_LIBRARIES "")
if(BANTAM_ONEDNN)
  find_package(dnnl QUIET)
  if(NOT TARGET DNNL::dnnl)
    message(FATAL_ERROR "oneDNN was not found (Debian: libdnnl-dev). "
                        "-DBANTAM_ONEDNN=OFF builds without it: Bantam's own convolutions stand in.")
  endif()
  find_package(OpenMP REQUIRED COMPONENTS CXX)  # oneDNN's threads, which we set to one
  set(BANTAM_ONEDNN_LIBRARIES DNNL::dnnl OpenMP::OpenMP_CXX)
endif()
