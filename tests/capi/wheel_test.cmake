# Packs the wheel, installs it into a fresh environment with NumPy, and runs the package's tests there. Where NumPy cannot be
# fetched the test says so and is skipped.
set(_venv ${BUILD_DIR}/wheel_test/venv)
file(REMOVE_RECURSE ${BUILD_DIR}/wheel_test)
execute_process(COMMAND ${PYTHON} ${PROJECT_DIR}/scripts/make_wheel.py ${BUILD_DIR} ${BUILD_DIR}/wheel_test COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PYTHON} -m venv ${_venv} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${_venv}/bin/pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 numpy RESULT_VARIABLE _status)
if(NOT _status EQUAL 0)
  message(STATUS "no NumPy can be installed: skipped")
  return()
endif()
file(GLOB _wheel ${BUILD_DIR}/wheel_test/*.whl)
execute_process(COMMAND ${_venv}/bin/pip install --quiet --disable-pip-version-check --no-index ${_wheel} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${_venv}/bin/python ${PROJECT_DIR}/python/tests/test_bantam.py WORKING_DIRECTORY ${BUILD_DIR}/wheel_test
                COMMAND_ERROR_IS_FATAL ANY)
