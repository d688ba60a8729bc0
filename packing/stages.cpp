// The stages of the search: boxes with little choice; of these and of the buffers, skyline, then ejection.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/packing/boxes.h"
#include "bantam/packing/ejection.h"
#include "bantam/packing/race.h"
#include "bantam/packing/search.h"

namespace bantam::planner {
namespace {

/// Shares of the budget: where joining ends, at the latest; where all subjects were tried; where the best of them ends,
/// before the buffers as they are are searched once more. Of a subject's part, where the skyline ends.
constexpr double kJoining = 0.5, kTrials = 0.4, kSubjects = 0.9, kOpening = 0.1;
/// The ejection search lowers the arena by one part in so many: little enough for few buffers to stick out.
constexpr std::uint64_t kSteps = 400;
/// More boxes than this share of the buffers: the joins found little.
constexpr double kMostBoxes = 0.6;

constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15;  // between workers

/// The room that joins may waste, over the most bytes alive, and which sizes are alike: generous rules result in few
/// boxes, strict ones low arenas.
struct Generosity {
  double room, alike;
};
constexpr Generosity kGenerosities[] = {{1.06, 0.1}, {1.03, 0.05}, {1.01, 0.1}, {1.0, 0.05}};

/// A problem that is packed: the buffers as they are, or boxes made of them by a rule; with the best placement so far.
struct Subject {
  std::shared_ptr<const BoxJoiner> joiner;
  Problem problem;
  Placement placement;

  void unpack(Placement& out) const {
    if (joiner)
      joiner->unpack(placement, out);
    else
      out = placement;
  }
};

/// Constructs placements of all sets of boxes, which is often enough. Stops when the goal is reached, or its part of
/// the time is over.
void construct_boxes(const Problem& problem, Budget& budget, std::vector<Subject>& subjects, Placement& best) {
  if (!BoxJoiner::suits(problem)) return;
  const Stop stop = [&] { return budget.is_over(kJoining); };
  Placement unpacked;
  for (const auto& [room, alike] : kGenerosities) {
    if (best.height <= budget.goal || budget.spent() || stop()) break;
    const auto joiner = std::make_shared<BoxJoiner>(problem);
    Subject boxes{.joiner = joiner, .problem = {}, .placement = {}};
    const auto most_live = static_cast<std::uint64_t>(room * static_cast<double>(problem.max_live));
    boxes.problem = joiner->join({.most_waste = 0.1, .alike = alike, .most_live = most_live}, stop);
    const auto same = [&](const Subject& other) {
      return other.problem.lower == boxes.problem.lower && other.problem.size == boxes.problem.size;
    };
    if (static_cast<double>(boxes.problem.count()) > kMostBoxes * static_cast<double>(problem.count()) ||
        std::ranges::any_of(subjects, same))
      continue;
    boxes.placement = construct(boxes.problem, budget);
    boxes.unpack(unpacked);
    keep_if_best(problem, unpacked, best);
    subjects.push_back(std::move(boxes));
  }
}

/// The searches, one after another, each by all workers side by side.
class Stages {
 public:
  Stages(const Problem& problem, std::uint64_t seed, int workers, Budget& budget, Placement& best)
      : problem_(problem), seed_(seed), workers_(static_cast<std::size_t>(workers)), budget_(budget), best_(best) {}

  void run(std::vector<Subject>& subjects) {
    const double share = kTrials / static_cast<double>(subjects.size());
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      const double begin = share * static_cast<double>(i);
      fill_skyline(subjects[i], EjectionSearch::suits(subjects[i].problem) ? begin + kOpening * share : begin + share);
      eject(subjects[i], begin + share, subjects[i].placement);
    }
    const auto height = [](const Subject& subject) { return subject.placement.height; };
    Subject& lowest = *std::ranges::min_element(subjects, {}, height);
    if (lowest.joiner) eject(lowest, kSubjects, lowest.placement);
    Subject whole{.joiner = {}, .problem = problem_, .placement = best_};
    eject(whole, 1.0, best_);
    if (!EjectionSearch::suits(problem_)) fill_skyline(whole, 1.0);  // too many neighbours for it
  }

 private:
  std::uint64_t next_seed() { return mix64(seed_ += kSeedStep); }

  std::uint64_t goal_of(const Subject& subject) const { return std::max(budget_.goal, subject.problem.max_live); }

  void keep(Subject& subject, const Placement& found) {
    const Stop stop = [&] { return budget_.is_over(1.0); };
    keep_if_best(subject.problem, found, subject.placement, stop);
    subject.unpack(unpacked_);
    keep_if_best(problem_, unpacked_, best_, stop);
  }

  // Runs a stage up to a share of the budget, unless the goal is reached.
  template <typename Search>
  void stage(const Subject& subject, double end, Search search) {
    if (best_.height <= goal_of(subject) || budget_.is_over(end)) return;
    Budget part = budget_.until(end);
    part.goal = goal_of(subject);
    search(part);
    budget_.used = part.used;
    budget_.go_on_here(part.elapsed());
  }

  void fill_skyline(Subject& subject, double end) {
    stage(subject, end, [&](Budget& part) {
      std::vector<Placement> found(workers_, subject.placement);
      const std::uint64_t seed = next_seed();
      const auto winner = race(workers_, part, [&](std::size_t number, Budget& budget) {
        search_skyline(subject.problem, seed + number * kSeedStep, budget, found[number]);
        return found[number].height <= budget.goal;
      });
      keep(subject, winner ? found[*winner] : *std::ranges::min_element(found, {}, &Placement::height));
    });
  }

  // All fit the same arena; all continue from the plan of the first that did.
  void eject(Subject& subject, double end, Placement start) {
    if (!EjectionSearch::suits(subject.problem)) return;
    stage(subject, end, [&](Budget& part) {
      std::vector<EjectionSearch> searches;
      searches.reserve(workers_);
      for (std::size_t i = 0; i < std::min<std::size_t>(workers_, 2); ++i)
        searches.emplace_back(subject.problem, start, i % 2 == 0 ? 2.0 : 1.0);
      while (searches.size() < workers_) searches.push_back(searches[searches.size() - 2]);  // lists are long to make
      std::uint64_t height = std::min(start.height, best_.height);
      while (height > part.goal && !part.spent()) {
        const std::uint64_t unit = problem_.alignment;
        const std::uint64_t arena = std::max(part.goal, (height - std::max(unit, height / kSteps)) / unit * unit);
        const std::uint64_t seed = next_seed();
        const auto winner = race(workers_, part, [&](std::size_t number, Budget& budget) {
          return searches[number].fit_into(arena, seed + number, budget);
        });
        if (!winner) break;
        start = searches[*winner].placement();
        height = start.height;
        for (std::size_t i = 0; i < workers_; ++i)
          if (i != *winner) searches[i].follow(searches[*winner]);
      }
      keep(subject, start);
    });
  }

  const Problem& problem_;
  std::uint64_t seed_;
  std::size_t workers_;
  Budget& budget_;
  Placement& best_;
  Placement unpacked_;
};

}  // namespace

void improve(const Problem& problem, std::uint64_t seed, int workers, Budget& budget, Placement& best) {
  if (best.height <= budget.goal || budget.spent()) return;
  if (!budget.goal_is_exact) budget.goal = near_bound(budget.goal);
  if (best.height <= budget.goal) return;
  std::vector<Subject> subjects{{.joiner = {}, .problem = problem, .placement = best}};
  construct_boxes(problem, budget, subjects, best);
  if (best.height <= budget.goal) return;
  std::rotate(subjects.begin(), subjects.begin() + 1, subjects.end());  // the boxes first
  Stages(problem, seed, workers, budget, best).run(subjects);
}

}  // namespace bantam::planner
