# Libraries that the distribution brings. Each is used by few files and linked privately.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# oneDNN's own package file asks for OpenCL headers that its CPU side does not need.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(megatrain_dnnl INTERFACE)
target_include_directories(megatrain_dnnl SYSTEM INTERFACE "${DNNL_INCLUDE_DIR}")
target_link_libraries(megatrain_dnnl INTERFACE "${DNNL_LIBRARY}")

find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

set(MEGATRAIN_HAS_CUDA OFF)
if(NOT MEGATRAIN_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(MEGATRAIN_HAS_CUDA ON)
  elseif(MEGATRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MEGATRAIN_CUDA=ON, but no CUDA compiler was found. "
                        "Put nvcc on the PATH or set CMAKE_CUDA_COMPILER.")
  endif()
endif()
if(MEGATRAIN_HAS_CUDA)
  include(MegatrainCuda)
endif()
