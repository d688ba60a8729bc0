// Internal: a graph from a source to a sink, drawn without crossings.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_placement.h"

namespace bantam::planner {

struct Arc {
  Index from, to;
};

/// Draws arcs in the plane one path at a time, with source and sink on the outside. Arcs that find no face are left
/// out: none if the graph is planar, else some; which ones is a matter of chance. Source: Demoucron, Malgrange and
/// Pertuiset 1964, "Graphes planaires: reconnaissance et construction de représentations planaires topologiques".
class PlanarEmbedding {
 public:
  static constexpr std::size_t kMostArcs = 500;

  /// Every arc must lie on a path from source to sink; at most kMostArcs.
  PlanarEmbedding(Index vertices, std::span<const Arc> arcs, Index source, Index sink, PhiloxSequence& random);

  /// For each vertex the drawn arcs out of it, from one side to the other, the same side for all. Every arc given lies
  /// on a path of such arcs from source to sink; what does not is taken out of the drawing.
  std::vector<std::vector<Index>> out_arcs();

 private:
  using Faces = std::bitset<kMostArcs + 12>;

  struct Face {
    std::vector<Index> vertices, arcs;  // arcs[i] joins vertices[i] and the next
  };
  /// What is not yet drawn but hangs together: one arc, or vertices with all their arcs.
  struct Fragment {
    Index arc = -1;
    std::vector<Index> inner, contacts;  // vertices not yet drawn, and the drawn ones they touch
    Faces faces;                         // those with all contacts
  };
  struct Path {
    std::vector<Index> vertices, arcs;
  };

  Index other_end(Index arc, Index vertex) const;
  void draw_first_path();
  void draw_rest();
  void find_faces(Fragment& fragment) const;
  void add_arc(Index arc);
  void add_fragments(std::span<const Index> vertices);
  void leave_out(Fragment fragment);
  Path path_through(const Fragment& fragment);
  void draw(const Path& path, std::size_t face);
  void leave_out_dead_ends();
  std::vector<Index> arcs_around(Index vertex, std::span<const std::vector<Index>> next) const;

  std::span<const Arc> arcs_;
  Index source_, sink_, outer_;  // outer_: the number of an arc that closes the outside
  PhiloxSequence& random_;
  std::vector<std::vector<Index>> at_;  // by vertex: its arcs
  std::vector<char> drawn_vertex_, drawn_, left_out_;
  std::vector<Face> faces_;
  std::vector<Faces> faces_at_;  // by vertex
  std::vector<Fragment> fragments_;
  std::vector<Index> reached_, mark_;  // searches: by vertex, the arc it was reached by, and when
  Index round_ = 0;
};

}  // namespace bantam::planner
