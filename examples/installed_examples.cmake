# Run by CTest: installs the build to a scratch folder, configures examples/ as a project of its own against that, builds all of them, and
# has docs/EMBEDDING.md and C-API.md run them: each has to print what the page shows. A program that includes a header of ours from anywhere but the
# installed folder does not compile, because there is no other.
set(scratch ${BUILD_DIR}/installed_examples)
file(REMOVE_RECURSE ${scratch}/prefix)
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${out}")
  endif()
  message(STATUS "${ARGV}\n${out}")
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${scratch}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples -B ${scratch}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${scratch}/prefix
    -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${scratch}/build)
run(${PYTHON} ${SOURCE_DIR}/tests/docs/check_docs.py run --source ${SOURCE_DIR} --program ${scratch}/prefix/bin/bantam
    --examples ${scratch}/build docs/EMBEDDING.md docs/C-API.md)
