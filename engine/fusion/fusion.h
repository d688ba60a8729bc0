// Fusion: chains of a graph's layers that run as one op, in fewer passes over memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/program/node_plan.h"
#include "bantam/memory/device/device.h"

namespace bantam {

class Graph;

struct FusionPattern;

/// Nodes [first, last] of a graph, a chain (or region) whose inner values nobody else reads, that run as one op.
struct Fusion {
  NodeId first = 1, last = 1;
  const FusionPattern* pattern = nullptr;
  /// The norm that ends it may be deferred to the next node, its only reader (NodePlan::defers_norm).
  bool defers_norm = false;
};

/// The properties of a program that decide which fused ops exist: the type it computes in, and the kind of its device
/// (for a model on a meta device the device that it stands for: plans are made for what runs).
struct FusionTarget {
  DType compute = DType::float32;
  DeviceKind device = DeviceKind::cpu;
  bool inference = false;  ///< nothing but forward in evaluation runs, of a graph that is folded
  /// By node: whether backward computes no gradient of its value (nodes_without_gradient in frozen_norms.h). Null:
  /// every value may have one.
  const std::vector<bool>* without_gradient = nullptr;
};

/// One kind of chain: a file of engine/fusion/, and a row of its table.
struct FusionPattern {
  enum class Use : std::uint8_t { always, training, inference };

  std::string_view name;  ///< "separable_block"
  /// The last node of the chain that begins at `first`, or 0 where the pattern does not match there, or no kernel
  /// supports its shapes. That inner values are read by the chain only is checked by the caller.
  NodeId (*match)(const Graph& graph, NodeId first, const FusionTarget& target);
  /// Makes the op that runs in place of the chain's layers. They have declared their parameters and buffers (running
  /// statistics), by their nodes' names. The op is a NormSource where the chain begins with a batch norm.
  std::unique_ptr<BoundLayer> (*bind)(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                      BufferArena& buffers);
  /// The chain ends the graph, and what runs is a LossHead (loss.h). It keeps next to nothing but its input, so that it
  /// never belongs to a checkpoint segment.
  bool makes_loss = false;
  /// Whether the op can defer the norm that ends it to the next node, which alone reads it; null: never.
  bool (*defers_norm)(const Graph& graph, const Fusion& fusion, const FusionTarget& target) = nullptr;
  /// The nodes after the first may also read values from before the chain. The op's inputs are those of the first node,
  /// then these.
  bool reads_outside = false;
  /// The nodes need not be a chain: values of all but the last are read among them alone, and a side branch may read
  /// values from before the first, as above. `match` checks who reads what among them.
  bool region = false;
  /// The op accepts a gradient of its output that relu' has been multiplied with (SumActivation in tensor_notes.h).
  bool accepts_masked_gradient = false;
  /// Programs that it is searched for.
  Use use = Use::always;

  bool is_for(const FusionTarget& target) const {
    return use == Use::always || (use == Use::inference) == target.inference;
  }
};

/// All patterns. At a node the first that matches is taken.
std::span<const FusionPattern* const> fusion_patterns();

/// The fusions of a graph, in its order; none overlap. A pure function of its arguments.
std::vector<Fusion> find_fusions(const Graph& graph, const FusionTarget& target);

/// Returns the batch norm whose batch statistics the convolution `node` computes as it writes its output
/// (NodePlan::statistics_for); 0 where there is none. It exists on CUDA, for convolutions without bias and activation
/// whose only reader is a batch norm, where the kernel can (kernels/conv/conv2d_statistics.h). The two are no chain:
/// each may run alone, within another fusion, deferred or recomputed, with the same bits.
NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target);

/// Whether the max pooling `node` multiplies the gradient of the convolution with bias and relu that it alone reads by
/// relu', and sums it for the bias, in place of a pass of its own (NodePlan::masks_gradient, gradient_is_masked): on
/// CUDA. `producer` writes its input, alone or as conv_relu.
bool pool_masks_gradient(const Graph& graph, NodeId node, const Fusion& producer, const FusionTarget& target);

/// Whether the convolution `node` is the last to contribute to the gradient of the sum that it reads, and its kernel
/// multiplies that by relu' and sums it as it writes (NodePlan::masks_gradient): a 1x1 convolution, the first in the
/// graph's order to read the sum that ends a pattern `masks` of (FusionPattern::accepts_masked_gradient). `producer`:
/// the fusion that writes its input; null where none does.
bool masks_gradient(const Graph& graph, NodeId node, const Fusion& producer, const FusionTarget& target);

}  // namespace bantam
