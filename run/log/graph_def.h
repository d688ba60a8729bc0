// The step program as TensorBoard's graph page reads it (TensorFlow's GraphDef).
#pragma once

#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/program/step_program.h"

namespace bantam::run {

/// The bytes of a GraphDef: a node an operation of the program, under the name of its first layer, with what runs there
/// (the layer's kind, or the fusion), the layers that it stands for, its output's shape and whether backward recomputes
/// it; the input before them, `loss` after them.
std::string graph_def(const Graph& graph, const StepProgram& program, std::string_view loss);

}  // namespace bantam::run
