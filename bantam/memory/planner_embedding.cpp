// Fragments know the faces that hold all their contacts: the one with the fewest is next, since it may soon have none.
#include "bantam/memory/planner_embedding.h"

#include <algorithm>
#include <utility>

namespace bantam::planner {
namespace {

constexpr Index kNone = -1;

std::size_t at(Index index) { return static_cast<std::size_t>(index); }

}  // namespace

PlanarEmbedding::PlanarEmbedding(Index vertices, std::span<const Arc> arcs, Index source, Index sink,
                                 PhiloxSequence& random)
    : arcs_(arcs),
      source_(source),
      sink_(sink),
      outer_(static_cast<Index>(arcs.size())),
      random_(random),
      at_(at(vertices)),
      drawn_vertex_(at(vertices), 0),
      drawn_(arcs.size() + 1, 0),
      left_out_(arcs.size() + 1, 0),
      faces_at_(at(vertices)),
      reached_(at(vertices), kNone),
      mark_(at(vertices), 0) {
  for (std::size_t i = 0; i < arcs.size(); ++i) {
    at_[at(arcs[i].from)].push_back(static_cast<Index>(i));
    at_[at(arcs[i].to)].push_back(static_cast<Index>(i));
  }
  if (arcs.empty()) return;
  draw_first_path();
  draw_rest();
}

Index PlanarEmbedding::other_end(Index arc, Index vertex) const {
  return arcs_[at(arc)].from == vertex ? arcs_[at(arc)].to : arcs_[at(arc)].from;
}

// From source to sink, and back by the outer arc: a face on each side.
void PlanarEmbedding::draw_first_path() {
  Face face;
  for (Index vertex = source_; vertex != sink_;) {
    const auto out = std::ranges::find_if(at_[at(vertex)], [&](Index arc) { return arcs_[at(arc)].from == vertex; });
    face.vertices.push_back(vertex);
    face.arcs.push_back(*out);
    vertex = arcs_[at(*out)].to;
  }
  face.vertices.push_back(sink_);
  face.arcs.push_back(outer_);
  for (const Index vertex : face.vertices) {
    drawn_vertex_[at(vertex)] = 1;
    faces_at_[at(vertex)].set(0).set(1);
  }
  for (const Index arc : face.arcs) drawn_[at(arc)] = 1;
  faces_.assign(2, face);
  std::ranges::reverse(faces_[1].vertices);
  std::reverse(faces_[1].arcs.begin(), faces_[1].arcs.end() - 1);
  std::vector<Index> rest;
  for (std::size_t v = 0; v < at_.size(); ++v)
    if (!drawn_vertex_[v] && !at_[v].empty()) rest.push_back(static_cast<Index>(v));
  for (const Index vertex : face.vertices)
    for (const Index arc : at_[at(vertex)])
      if (arcs_[at(arc)].from == vertex) add_arc(arc);
  add_fragments(rest);
}

void PlanarEmbedding::find_faces(Fragment& fragment) const {
  fragment.faces = faces_at_[at(fragment.contacts[0])];
  for (const Index contact : fragment.contacts) fragment.faces &= faces_at_[at(contact)];
}

// An arc between drawn vertices is a fragment of its own.
void PlanarEmbedding::add_arc(Index arc) {
  const auto [from, to] = arcs_[at(arc)];
  if (drawn_[at(arc)] || left_out_[at(arc)] || !drawn_vertex_[at(from)] || !drawn_vertex_[at(to)]) return;
  Fragment& fragment = fragments_.emplace_back(Fragment{.arc = arc, .inner = {}, .contacts = {from, to}, .faces = {}});
  find_faces(fragment);
}

// The fragments that these vertices, not drawn, fall into. A part with less than two contacts is left out.
void PlanarEmbedding::add_fragments(std::span<const Index> vertices) {
  const Index seen = ++round_;
  for (const Index start : vertices) {
    if (drawn_vertex_[at(start)] || mark_[at(start)] == seen) continue;
    mark_[at(start)] = seen;
    Fragment fragment{.arc = kNone, .inner = {start}, .contacts = {}, .faces = {}};
    for (std::size_t i = 0; i < fragment.inner.size(); ++i) {
      const Index vertex = fragment.inner[i];
      for (const Index arc : at_[at(vertex)]) {
        const Index other = other_end(arc, vertex);
        if (left_out_[at(arc)]) continue;
        if (drawn_vertex_[at(other)]) {
          fragment.contacts.push_back(other);
        } else if (mark_[at(other)] != seen) {
          mark_[at(other)] = seen;
          fragment.inner.push_back(other);
        }
      }
    }
    std::ranges::sort(fragment.contacts);
    fragment.contacts.erase(std::unique(fragment.contacts.begin(), fragment.contacts.end()), fragment.contacts.end());
    if (fragment.contacts.size() < 2) {
      for (const Index vertex : fragment.inner)
        for (const Index arc : at_[at(vertex)]) left_out_[at(arc)] = 1;
      continue;
    }
    find_faces(fragment);
    fragments_.push_back(std::move(fragment));
  }
}

// No face has all its contacts: those of one face stay, and the arcs to the others are left out.
void PlanarEmbedding::leave_out(Fragment fragment) {
  if (fragment.arc != kNone) {
    left_out_[at(fragment.arc)] = 1;
    return;
  }
  std::vector<Index> touching(faces_.size(), 0);
  for (const Index contact : fragment.contacts) {
    const Faces& faces = faces_at_[at(contact)];
    for (std::size_t face = faces._Find_first(); face < faces.size(); face = faces._Find_next(face)) ++touching[face];
  }
  const std::size_t kept = static_cast<std::size_t>(std::ranges::max_element(touching) - touching.begin());
  for (const Index vertex : fragment.inner)
    for (const Index arc : at_[at(vertex)]) {
      const Index other = other_end(arc, vertex);
      if (drawn_vertex_[at(other)] && !faces_at_[at(other)].test(kept)) left_out_[at(arc)] = 1;
    }
  add_fragments(fragment.inner);
}

// The shortest from one of its contacts to another.
PlanarEmbedding::Path PlanarEmbedding::path_through(const Fragment& fragment) {
  if (fragment.arc != kNone) return {fragment.contacts, {fragment.arc}};
  const Index start = fragment.contacts[random_.below(fragment.contacts.size())];
  std::vector<Index> queue{start};
  Path path;
  const auto trace_back = [&](Index vertex) {
    for (; vertex != start; vertex = other_end(reached_[at(vertex)], vertex)) {
      path.vertices.push_back(vertex);
      path.arcs.push_back(reached_[at(vertex)]);
    }
    path.vertices.push_back(start);
  };
  const Index to_see = ++round_, seen = ++round_;
  for (const Index vertex : fragment.inner) mark_[at(vertex)] = to_see;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const Index arc : at_[at(queue[i])]) {
      const Index other = other_end(arc, queue[i]);
      if (left_out_[at(arc)] || drawn_[at(arc)] || other == start) continue;
      if (drawn_vertex_[at(other)] && i > 0) {
        reached_[at(other)] = arc;
        trace_back(other);
        return path;
      }
      if (drawn_vertex_[at(other)] || mark_[at(other)] != to_see) continue;
      mark_[at(other)] = seen;
      reached_[at(other)] = arc;
      queue.push_back(other);
    }
  }
  return path;
}

// The path parts the face in two.
void PlanarEmbedding::draw(const Path& path, std::size_t face) {
  const Face old = std::move(faces_[face]);
  const std::size_t count = old.vertices.size();
  const auto place_of = [&](Index vertex) {
    return static_cast<std::size_t>(std::ranges::find(old.vertices, vertex) - old.vertices.begin());
  };
  const std::size_t first = place_of(path.vertices.front()), last = place_of(path.vertices.back());
  Face behind, ahead;
  const auto follow = [&](std::size_t from, std::size_t to, Face& into) {
    for (std::size_t i = from; i != to; i = (i + 1) % count) {
      into.vertices.push_back(old.vertices[i]);
      into.arcs.push_back(old.arcs[i]);
    }
  };
  follow(first, last, behind);
  follow(last, first, ahead);
  for (std::size_t i = path.arcs.size(); i > 0; --i) {
    behind.vertices.push_back(path.vertices[i]);
    behind.arcs.push_back(path.arcs[i - 1]);
    drawn_[at(path.arcs[i - 1])] = 1;
  }
  for (std::size_t i = 0; i < path.arcs.size(); ++i) {
    ahead.vertices.push_back(path.vertices[i]);
    ahead.arcs.push_back(path.arcs[i]);
  }
  for (const Index vertex : old.vertices) faces_at_[at(vertex)].reset(face);
  for (const Index vertex : path.vertices) drawn_vertex_[at(vertex)] = 1;
  for (const Index vertex : behind.vertices) faces_at_[at(vertex)].set(face);
  for (const Index vertex : ahead.vertices) faces_at_[at(vertex)].set(faces_.size());
  faces_[face] = std::move(behind);
  faces_.push_back(std::move(ahead));
}

void PlanarEmbedding::draw_rest() {
  while (!fragments_.empty()) {
    std::size_t chosen = 0, fewest = kMostArcs + 1;
    for (std::size_t i = 0; i < fragments_.size() && fewest > 0; ++i) {
      const std::size_t count = fragments_[i].faces.count();
      if (count >= fewest) continue;
      fewest = count;
      chosen = i;
    }
    std::swap(fragments_[chosen], fragments_.back());
    Fragment fragment = std::move(fragments_.back());
    fragments_.pop_back();
    if (fewest == 0) {
      leave_out(std::move(fragment));
      continue;
    }
    std::size_t face = fragment.faces._Find_first();
    for (std::uint64_t skip = random_.below(fewest); skip > 0; --skip) face = fragment.faces._Find_next(face);
    const Path path = path_through(fragment);
    draw(path, face);
    for (Fragment& other : fragments_)
      if (other.faces.test(face)) find_faces(other);
    if (fragment.arc != kNone) continue;
    for (std::size_t i = 1; i + 1 < path.vertices.size(); ++i)
      for (const Index arc : at_[at(path.vertices[i])]) {
        const Index other = other_end(arc, path.vertices[i]);
        const bool inner =
            std::find(path.vertices.begin() + 1, path.vertices.end() - 1, other) != path.vertices.end() - 1;
        if (!inner || arcs_[at(arc)].from == path.vertices[i]) add_arc(arc);
      }
    add_fragments(fragment.inner);
  }
}

void PlanarEmbedding::leave_out_dead_ends() {
  std::vector<Index> in(at_.size(), 0), out(at_.size(), 0);
  for (std::size_t i = 0; i < arcs_.size(); ++i) {
    if (!drawn_[i]) continue;
    ++out[at(arcs_[i].from)];
    ++in[at(arcs_[i].to)];
  }
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < arcs_.size(); ++i) {
      const auto [from, to] = arcs_[i];
      if (!drawn_[i] || ((from == source_ || in[at(from)] > 0) && (to == sink_ || out[at(to)] > 0))) continue;
      drawn_[i] = 0;
      --out[at(from)];
      --in[at(to)];
      again = true;
    }
  }
}

// The arcs out of a vertex lie side by side around it, and so do those into it.
std::vector<Index> PlanarEmbedding::arcs_around(Index vertex, std::span<const std::vector<Index>> next) const {
  const std::vector<Index>& arcs = at_[at(vertex)];
  const auto next_of = [&](Index arc) {
    do {
      arc = arc == outer_ ? next[at(vertex)].back()
                          : next[at(vertex)][static_cast<std::size_t>(std::ranges::find(arcs, arc) - arcs.begin())];
    } while (!drawn_[at(arc)]);
    return arc;
  };
  const auto leaves = [&](Index arc) { return arc != outer_ && arcs_[at(arc)].from == vertex; };
  Index first = kNone;
  if (vertex == source_) first = next_of(outer_);
  for (std::size_t i = 0; i < arcs.size() && first == kNone; ++i)
    if (drawn_[at(arcs[i])] && !leaves(arcs[i]) && leaves(next_of(arcs[i]))) first = next_of(arcs[i]);
  std::vector<Index> out;
  for (Index arc = first; arc != kNone && leaves(arc) && (out.empty() || arc != first); arc = next_of(arc))
    out.push_back(arc);
  return out;
}

std::vector<std::vector<Index>> PlanarEmbedding::out_arcs() {
  std::vector<std::vector<Index>> next(at_.size());  // by vertex and place in at_; the outer arc last
  for (std::size_t v = 0; v < at_.size(); ++v) next[v].assign(at_[v].size() + 1, kNone);
  for (const Face& face : faces_)
    for (std::size_t i = 0; i < face.vertices.size(); ++i) {
      const std::size_t vertex = at(face.vertices[(i + 1) % face.vertices.size()]);
      const Index into = face.arcs[i], out = face.arcs[(i + 1) % face.arcs.size()];
      if (into == outer_)
        next[vertex].back() = out;
      else
        next[vertex][static_cast<std::size_t>(std::ranges::find(at_[vertex], into) - at_[vertex].begin())] = out;
    }
  leave_out_dead_ends();
  std::vector<std::vector<Index>> out(at_.size());
  for (std::size_t v = 0; v < at_.size(); ++v)
    if (!at_[v].empty()) out[v] = arcs_around(static_cast<Index>(v), next);
  return out;
}

}  // namespace bantam::planner
