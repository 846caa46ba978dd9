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

# HDF5's own package files and CMake's FindHDF5 bring the whole link line of the compiler wrapper, with
# development packages that a user of the shared library does not need. Debian keeps the serial
# library beside those for MPI.
if(NOT TARGET megatrain_hdf5)
  find_path(HDF5_C_INCLUDE_DIR hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
  find_library(HDF5_C_LIBRARY NAMES hdf5_serial hdf5 NAMES_PER_DIR PATH_SUFFIXES hdf5/serial REQUIRED)
  file(STRINGS "${HDF5_C_INCLUDE_DIR}/H5public.h" hdf5_version
       REGEX "^#define H5_VERS_(MAJOR|MINOR|RELEASE)")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*RELEASE +([0-9]+).*" "\\1.\\2.\\3"
         hdf5_version "${hdf5_version}")
  if(hdf5_version VERSION_LESS 1.10.7)
    message(FATAL_ERROR "HDF5 ${hdf5_version} in ${HDF5_C_INCLUDE_DIR} is too old; MegaTrain needs 1.10.7.")
  endif()
  add_library(megatrain_hdf5 INTERFACE IMPORTED)
  # One interface, that of 1.10, whatever the version.
  set_target_properties(megatrain_hdf5 PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${HDF5_C_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS H5_USE_110_API
    INTERFACE_LINK_LIBRARIES "${HDF5_C_LIBRARY}")
endif()

if(NOT TARGET megatrain_xxhash)
  find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
  find_library(XXHASH_LIBRARY xxhash REQUIRED)
  file(STRINGS "${XXHASH_INCLUDE_DIR}/xxhash.h" xxhash_version
       REGEX "^#define XXH_VERSION_(MAJOR|MINOR|RELEASE)")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*RELEASE +([0-9]+).*" "\\1.\\2.\\3"
         xxhash_version "${xxhash_version}")
  if(xxhash_version VERSION_LESS 0.8.0)
    message(FATAL_ERROR "xxHash ${xxhash_version} in ${XXHASH_INCLUDE_DIR} is too old; MegaTrain needs 0.8.")
  endif()
  add_library(megatrain_xxhash INTERFACE IMPORTED)
  set_target_properties(megatrain_xxhash PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${XXHASH_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${XXHASH_LIBRARY}")
endif()

# Optional: several processes on CPUs. Gloo's own package file names a target that is not prefixed.
if(NOT TARGET megatrain_gloo)
  find_path(GLOO_INCLUDE_DIR gloo/context.h)
  find_library(GLOO_LIBRARY gloo)
  if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
    add_library(megatrain_gloo INTERFACE IMPORTED)
    set_target_properties(megatrain_gloo PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${GLOO_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${GLOO_LIBRARY}")
  endif()
endif()
