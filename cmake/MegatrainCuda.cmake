# The CUDA device: language, architectures, flags and libraries. Sets MEGATRAIN_HAS_CUDNN.

# CMake 3.25.1 does not know C++20 for the newest nvcc unless told.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION AND CMAKE_VERSION VERSION_LESS 3.25.2)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Explicit architectures, so that a machine without a GPU builds for the machines that have one:
# code for each, and PTX of the newest for what comes after.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE megatrain_nvcc_text)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" megatrain_nvcc_match "${megatrain_nvcc_text}")
  if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
    set(megatrain_architectures 80-real 89-real 90-real 100-real 120)
  else()
    set(megatrain_architectures 80-real 89-real 90)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${megatrain_architectures} CACHE STRING "CUDA architectures, explicit")
endif()
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native")
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=native builds for this machine's GPU alone; name the "
                      "architectures, for example -DCMAKE_CUDA_ARCHITECTURES=90")
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.4 REQUIRED)

# As in C++: a fused multiply-add is written where it is meant. Relaxed constexpr lets kernels use
# the size helpers of core/base.
target_compile_options(megatrain_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>)

# cuDNN, with the header-only frontend of PyPI's nvidia-cudnn-frontend or its source release.
# Without either, the CUDA device has its own attention kernel only, and says so.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})

set(MEGATRAIN_CUDNN_FRONTEND_DIR "" CACHE PATH
    "Folder that holds cudnn_frontend.h (1.18); empty: look in the build's deps folder and in Python's packages")
set(megatrain_frontend_hints "${MEGATRAIN_CUDNN_FRONTEND_DIR}" "${CMAKE_BINARY_DIR}/deps/include")
if(NOT MEGATRAIN_CUDNN_FRONTEND_DIR)
  find_program(MEGATRAIN_PYTHON NAMES python3)
  mark_as_advanced(MEGATRAIN_PYTHON)
  if(MEGATRAIN_PYTHON)
    execute_process(
      COMMAND "${MEGATRAIN_PYTHON}" -c
              "import importlib.metadata as m; print(m.distribution('nvidia-cudnn-frontend').locate_file('include'))"
      OUTPUT_VARIABLE megatrain_frontend_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND megatrain_frontend_hints "${megatrain_frontend_python}")
  endif()
endif()
unset(MEGATRAIN_CUDNN_FRONTEND_INCLUDE CACHE)
find_path(MEGATRAIN_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${megatrain_frontend_hints})
mark_as_advanced(MEGATRAIN_CUDNN_FRONTEND_INCLUDE)

# From 1.19 on the headers need NVRTC and the driver library at link time.
set(megatrain_frontend_version "")
if(MEGATRAIN_CUDNN_FRONTEND_INCLUDE)
  file(STRINGS "${MEGATRAIN_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend_version.h" megatrain_frontend_lines
       REGEX "define CUDNN_FRONTEND_(MAJOR|MINOR)_VERSION")
  string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" megatrain_frontend_version
         "${megatrain_frontend_lines}")
endif()

set(MEGATRAIN_HAS_CUDNN OFF)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(STATUS "cuDNN not found: attention on CUDA uses the own kernel only")
elseif(NOT MEGATRAIN_CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cudnn_frontend.h not found (set MEGATRAIN_CUDNN_FRONTEND_DIR, or pip install "
                 "nvidia-cudnn-frontend==1.18.0): attention on CUDA uses the own kernel only")
elseif(NOT megatrain_frontend_version VERSION_EQUAL 1.18)
  message(WARNING "cudnn-frontend ${megatrain_frontend_version} in ${MEGATRAIN_CUDNN_FRONTEND_INCLUDE} is "
                  "not 1.18: attention on CUDA uses the own kernel only")
else()
  set(MEGATRAIN_HAS_CUDNN ON)
  add_library(megatrain_cudnn INTERFACE)
  target_include_directories(megatrain_cudnn SYSTEM INTERFACE "${CUDNN_INCLUDE_DIR}")
  target_link_libraries(megatrain_cudnn INTERFACE "${CUDNN_LIBRARY}")
endif()
if(MEGATRAIN_CUDNN_FRONTEND_DIR AND NOT EXISTS "${MEGATRAIN_CUDNN_FRONTEND_DIR}/cudnn_frontend.h")
  message(FATAL_ERROR "MEGATRAIN_CUDNN_FRONTEND_DIR=${MEGATRAIN_CUDNN_FRONTEND_DIR} holds no cudnn_frontend.h")
endif()
