# Install rules: a tree that can be moved, and copied to a machine with the same or a newer C library.
#   bin/megatrain, lib/megatrain/ (shared libraries that a bare system lacks),
#   lib/libmegatrain_*.a, include/megatrain/, lib/cmake/megatrain/ (find_package(MegaTrain))

include(CMakePackageConfigHelpers)

set(MEGATRAIN_EXPORTED_LIBRARIES "")
foreach(library core io parallel)
  if(TARGET megatrain_${library})
    set_target_properties(megatrain_${library} PROPERTIES EXPORT_NAME ${library})
    target_compile_features(megatrain_${library} PUBLIC cxx_std_20)  # our headers need it
    list(APPEND MEGATRAIN_EXPORTED_LIBRARIES megatrain_${library})
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${library}" DESTINATION include/megatrain
            FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()
install(TARGETS ${MEGATRAIN_EXPORTED_LIBRARIES} EXPORT megatrain ARCHIVE DESTINATION lib)
install(EXPORT megatrain NAMESPACE megatrain:: DESTINATION lib/cmake/megatrain
        FILE megatrain-targets.cmake)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/megatrain-config.cmake.in"
  "${PROJECT_BINARY_DIR}/megatrain-config.cmake"
  INSTALL_DESTINATION lib/cmake/megatrain NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/megatrain-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/megatrain-config.cmake"
              "${PROJECT_BINARY_DIR}/megatrain-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/MegatrainLibraries.cmake"
        DESTINATION lib/cmake/megatrain)

if(TARGET megatrain_program)
  # DT_RPATH rather than DT_RUNPATH: only the former also counts for what the bundled libraries
  # themselves need.
  target_link_options(megatrain_program PRIVATE -Wl,--disable-new-dtags)
  set(rpath "$ORIGIN/../lib/megatrain")
  set(left_out
      # The C library belongs to the machine, and so does the GPU's driver.
      "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|anl|nsl)\\.so" "^linux-vdso"
      "^libcuda\\.so" "^libnvidia-")
  if(MEGATRAIN_HAS_CUDA AND NOT MEGATRAIN_BUNDLE_CUDA)
    list(APPEND left_out "^lib(cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvJitLink)[._]")
    list(APPEND rpath "${CUDAToolkit_LIBRARY_DIR}")
  endif()
  set_target_properties(megatrain_program PROPERTIES INSTALL_RPATH "${rpath}")
  install(TARGETS megatrain_program RUNTIME_DEPENDENCY_SET megatrain_bundle
          RUNTIME DESTINATION bin)
  install(RUNTIME_DEPENDENCY_SET megatrain_bundle
          PRE_EXCLUDE_REGEXES ${left_out}
          LIBRARY DESTINATION lib/megatrain)
endif()
