# Run by CTest: clang++ checks sources with the build's own flags, warnings as errors; no code is made. SOURCES: a
# regular expression for paths below the project's folder.
file(READ ${BUILD_DIR}/compile_commands.json commands)
string(JSON count LENGTH "${commands}")
math(EXPR last "${count} - 1")
set(checked 0)
set(failures "")
foreach(i RANGE ${last})
  string(JSON file GET "${commands}" ${i} file)
  file(RELATIVE_PATH path ${PROJECT_DIR} ${file})
  if(file MATCHES "/unity/[^/]*[.]cpp$")  # a source that includes others, which are read with it
    file(READ ${file} path)
  endif()
  if(NOT path MATCHES "(^|bantam/)(base|packing|memory|kernels|engine|data|models|cli)/[^\n]*[.]cpp" OR NOT path MATCHES "${SOURCES}"
     OR path MATCHES "bantam/tests/")
    continue()
  endif()
  string(JSON command GET "${commands}" ${i} command)
  string(JSON folder GET "${commands}" ${i} directory)
  separate_arguments(words UNIX_COMMAND "${command}")
  list(FILTER words EXCLUDE REGEX "^(--param=avoid-fma-max-bits=0|-Wno-subobject-linkage)$")  # GCC's own
  while(words MATCHES "^[^-]")  # the compiler, and what launches it
    list(POP_FRONT words)
  endwhile()
  execute_process(COMMAND ${CLANG} ${words} -Wno-ignored-optimization-argument -fsyntax-only WORKING_DIRECTORY ${folder}
                  RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  math(EXPR checked "${checked} + 1")
  if(NOT rc EQUAL 0)
    string(APPEND failures "${path}:\n${out}\n")
  endif()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no source matches '${SOURCES}'")
endif()
if(failures)
  message(FATAL_ERROR "${CLANG} refuses:\n${failures}")
endif()
message(STATUS "${checked} files")
