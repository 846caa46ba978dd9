# What the build needs: the libraries of the core and io, those of the program, and CUDA if wanted.

include(MegatrainLibraries)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

set(MEGATRAIN_HAS_CUDA OFF)
set(MEGATRAIN_HAS_CUDNN OFF)
if(NOT MEGATRAIN_CUDA STREQUAL "OFF")
  # Where CUDA's own installer puts it, but does not put it on the PATH.
  find_program(MEGATRAIN_NVCC nvcc HINTS /usr/local/cuda/bin)
  mark_as_advanced(MEGATRAIN_NVCC)
  if(MEGATRAIN_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${MEGATRAIN_NVCC}" CACHE FILEPATH "CUDA compiler")
  endif()
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
  # Where scripts/setup.sh puts the headers of cudnn-frontend.
  list(APPEND CMAKE_PREFIX_PATH "${PROJECT_SOURCE_DIR}/build/deps/cudnn-frontend")
  include(MegatrainCuda)
endif()
