# NCCL, for ranks on GPUs. Sets MEGATRAIN_HAS_NCCL.
#
# 2.26: communicators of one GPU may be used at the same time, and may be aborted as a group.

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})

set(megatrain_nccl_problem "")
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  set(megatrain_nccl_problem "NCCL was not found. Install libnccl-dev, or set NCCL_INCLUDE_DIR and NCCL_LIBRARY")
else()
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_version REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
         nccl_version "${nccl_version}")
  if(nccl_version VERSION_LESS 2.26)
    set(megatrain_nccl_problem "NCCL ${nccl_version} in ${NCCL_INCLUDE_DIR} is too old; MegaTrain needs 2.26")
  endif()
endif()

if(NOT megatrain_nccl_problem)
  set(MEGATRAIN_HAS_NCCL ON)
  add_library(megatrain_nccl INTERFACE)
  target_include_directories(megatrain_nccl SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
  # Its header includes the runtime's.
  target_link_libraries(megatrain_nccl INTERFACE "${NCCL_LIBRARY}" CUDA::cudart)
elseif(MEGATRAIN_NCCL STREQUAL "ON")
  message(FATAL_ERROR "MEGATRAIN_NCCL=ON, but ${megatrain_nccl_problem}.")
else()
  message(STATUS "${megatrain_nccl_problem}: one process only on GPUs")
endif()
