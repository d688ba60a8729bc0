# CPack's configuration of one Debian package out of a staged tree: scripts/deb.sh writes a file that includes it, for each of
# them, and sets BANTAM_PACKAGE (libbantam0, libbantam-dev, bantam), BANTAM_VERSION, BANTAM_STAGE,
# BANTAM_MAINTAINER and BANTAM_LIBRARIES (packages of shared libraries).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ${BANTAM_PACKAGE})
set(CPACK_PACKAGE_FILE_NAME ${BANTAM_PACKAGE})  # of CPack's scratch folder; the package's file is named as Debian names it
set(CPACK_PACKAGE_VENDOR Bantam)
set(CPACK_PACKAGE_VERSION ${BANTAM_VERSION})
set(CPACK_PACKAGE_CONTACT "${BANTAM_MAINTAINER}")
set(CPACK_INSTALL_CMAKE_PROJECTS "")
set(CPACK_INSTALLED_DIRECTORIES "${BANTAM_STAGE};/usr")
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME ${BANTAM_PACKAGE})
set(CPACK_DEBIAN_PACKAGE_SOURCE bantam)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${BANTAM_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES OFF)  # deb.sh has stripped them
set(_what "Bantam trains convolutional networks on the CPU and on NVIDIA GPUs,
within a number of bytes that the user names: it plans the memory of a
training run to the byte before it starts. The same seed produces the
same bits.

A processor with AVX2, FMA and F16C is required (x86-64-v3). CUDA's
libraries are loaded at run time where they are installed.")
if(BANTAM_PACKAGE STREQUAL "libbantam0")
  set(CPACK_DEBIAN_PACKAGE_SECTION libs)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "engine that trains convolutional networks - shared library")
  set(CPACK_PACKAGE_DESCRIPTION "${_what}\n\nThis package contains the libraries that programs need at run time.")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "${BANTAM_LIBRARIES}")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${BANTAM_STAGE}/../triggers;${BANTAM_STAGE}/../shlibs")
elseif(BANTAM_PACKAGE STREQUAL "libbantam-dev")
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "engine that trains convolutional networks - development files")
  set(CPACK_PACKAGE_DESCRIPTION "${_what}\n\nThis package contains headers, the static library, CMake's and
pkg-config's files.")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libbantam0 (= ${BANTAM_VERSION}-1)")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, pkgconf")
else()
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains convolutional networks within a memory limit")
  set(CPACK_PACKAGE_DESCRIPTION "${_what}\n\nThis package contains the program bantam.")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "${BANTAM_LIBRARIES}")
endif()
