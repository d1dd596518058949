# What a plugin outside this tree builds with. In its CMakeLists.txt:
#
#   find_package(Python REQUIRED COMPONENTS Interpreter)
#   execute_process(COMMAND ${Python_EXECUTABLE} -m geomx --cmake-dir OUTPUT_STRIP_TRAILING_WHITESPACE
#                   OUTPUT_VARIABLE geomx_DIR COMMAND_ERROR_IS_FATAL ANY)
#   find_package(geomx CONFIG REQUIRED)
#   geomx_add_plugin(geomx_mine src/mine.cc)
#
# The target geomx::plugin is the header alone: a plugin links nothing of the core.
get_filename_component(geomx_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)

if(NOT TARGET geomx::plugin)
  add_library(geomx::plugin INTERFACE IMPORTED)
  set_target_properties(geomx::plugin PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${geomx_INCLUDE_DIR}")
endif()

# geomx_add_plugin(name sources...): the shared library libNAME.so with geomx_plugin_v1 as its only exported symbol.
# Under scikit-build-core it is installed into the Python package of the same name, except from within GeoMX's own tree,
# where plugins are built for the C++ tests alone.
function(geomx_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE geomx::plugin)
  set_target_properties(
    ${name}
    PROPERTIES PREFIX "lib"
               SUFFIX ".so"
               C_VISIBILITY_PRESET hidden
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  if(NOT CMAKE_CXX_STANDARD)
    set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  endif()
  if(SKBUILD AND NOT CMAKE_PROJECT_NAME STREQUAL "geomx")
    install(TARGETS ${name} LIBRARY DESTINATION ${name})
  endif()
endfunction()
