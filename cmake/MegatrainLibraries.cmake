# Third-party libraries that our static libraries link. This file is installed with the package, so
# that a project which uses the package finds the same targets. Each library is used by few files
# and linked privately.

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

# oneDNN's own package file asks for OpenCL headers that its CPU side does not need.
if(NOT TARGET megatrain_dnnl)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" dnnl_version
       REGEX "^#define DNNL_VERSION_(MAJOR|MINOR)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" dnnl_version "${dnnl_version}")
  if(dnnl_version VERSION_LESS 2.6)
    message(FATAL_ERROR "oneDNN ${dnnl_version} in ${DNNL_INCLUDE_DIR} is too old; MegaTrain needs 2.6.")
  endif()
  add_library(megatrain_dnnl INTERFACE IMPORTED)
  set_target_properties(megatrain_dnnl PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${DNNL_LIBRARY}")
endif()

find_package(hwy 1.0.3 REQUIRED CONFIG)
