# run(COMMAND…), for scripts that CTest runs: a command that fails ends the script with what it printed; else `output` has that.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()
