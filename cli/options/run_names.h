// The program speaks of runs throughout: here the names of run/ become its own.
#pragma once

namespace bantam::run {}
namespace bantam::cli {
using namespace run;
}
