# What a plugin builds with. Its whole CMakeLists.txt:
#
#   cmake_minimum_required(VERSION 3.22)
#   project(geomx_mine LANGUAGES CXX)
#   find_package(geomx CONFIG REQUIRED)
#   geomx_add_plugin(geomx_mine src/mine.cc)
#
# pip finds this file by itself: scikit-build-core searches the environment's packages, with build isolation too.
# By hand: cmake -S . -B build -Dgeomx_DIR=$(python -m geomx --cmake-dir)
#
# The target geomx::plugin is the header alone: a plugin links nothing of the core.
get_filename_component(geomx_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)

if(NOT TARGET geomx::plugin)
  add_library(geomx::plugin INTERFACE IMPORTED)
  set_target_properties(geomx::plugin PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${geomx_INCLUDE_DIR}")
endif()

# geomx_add_plugin(name sources...): the shared library libNAME.so with geomx_plugin_v1 as its only exported symbol, of
# C11 or C++17, with the mathematical library. Under scikit-build-core it is installed into the Python package of the
# same name, except from within GeoMX's own tree, where plugins are built for the C++ tests alone.
function(geomx_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE geomx::plugin m)
  # Without a build type, as by hand, CMake would optimise nothing.
  target_compile_options(${name} PRIVATE -Wall -Wextra $<$<CONFIG:>:-O2>)
  set_target_properties(
    ${name}
    PROPERTIES PREFIX "lib"
               SUFFIX ".so"
               C_STANDARD 11
               CXX_STANDARD 17
               CXX_STANDARD_REQUIRED ON
               C_VISIBILITY_PRESET hidden
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  if(SKBUILD AND NOT CMAKE_PROJECT_NAME STREQUAL "geomx")
    install(TARGETS ${name} LIBRARY DESTINATION ${name})
  endif()
endfunction()

# geomx_add_plugin_tests(name sources...): within GeoMX's tree (a folder below plugins/), a test that sees the core and
# the plugin's src/; PLUGIN_LIBRARY is the path of what geomx_add_plugin(name) makes. Elsewhere there is no core, so
# there is nothing to build.
function(geomx_add_plugin_tests name)
  if(NOT TARGET geomx_core)
    return()
  endif()
  add_executable(${name}_tests ${ARGN})
  target_include_directories(${name}_tests PRIVATE src)
  target_include_directories(${name}_tests SYSTEM PRIVATE ${GEOMX_DOCTEST_INCLUDE})
  target_link_libraries(${name}_tests PRIVATE geomx_core geomx_flags)
  target_compile_definitions(${name}_tests PRIVATE PLUGIN_LIBRARY="$<TARGET_FILE:${name}>")
  add_dependencies(${name}_tests ${name})
  string(REGEX REPLACE "^geomx_" "plugins/" test ${name})
  add_test(NAME ${test} COMMAND ${name}_tests)
  set_tests_properties(${test} PROPERTIES TIMEOUT 120)
endfunction()
