// The stages of the search: boxes that leave little choice; of these and of the buffers, dissection or skyline, then
// ejection.
#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_boxes.h"
#include "bantam/memory/planner_dissection.h"
#include "bantam/memory/planner_ejection.h"
#include "bantam/memory/planner_search.h"

namespace bantam::planner {
namespace {

/// Shares of the budget: where the first subject of a worker ends, and where all do, before the buffers as they are are
/// searched once more; of a subject's part where the dissection ends, or the skyline.
constexpr double kFirst = 0.5, kSubjects = 0.9, kDissection = 0.5, kOpening = 0.2;
/// A dissection of a higher cost is not worth to be gone on with, or to begin the ejection search from.
constexpr double kPromising = 0.2, kGood = 0.25;
/// More boxes than this share of the buffers: the joins found little.
constexpr double kMostBoxes = 0.6;

/// A lifetime may have been cut short by this share.
constexpr double kMostMoved = 0.055;

constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15;  // between workers

/// The room that joins may waste, over the most bytes alive, and which sizes are alike: generous rules leave few boxes,
/// strict ones low arenas.
struct Generosity {
  double room, alike;
};
constexpr Generosity kGenerosities[] = {{1.06, 0.1}, {1.03, 0.05}, {1.01, 0.1}, {1.0, 0.05}};

/// What is packed: the buffers as they are, or boxes made of them by one of the rules; with the best placement so far.
struct Subject {
  std::shared_ptr<const BoxJoiner> joiner;
  Problem problem;
  Placement placement;
  double dissection_cost = 1;

  void unpack(Placement& out) const {
    if (joiner)
      joiner->unpack(placement, out);
    else
      out = placement;
  }
};

/// Constructs placements of all sets of boxes, which is often enough. Stops when the goal is reached.
void construct_boxes(const Problem& problem, Budget& budget, std::vector<Subject>& subjects, Placement& best) {
  if (!BoxJoiner::suits(problem)) return;
  Placement unpacked;
  for (const auto& [room, alike] : kGenerosities) {
    if (best.height <= budget.goal || budget.spent()) break;
    const auto joiner = std::make_shared<BoxJoiner>(problem);
    Subject boxes{.joiner = joiner, .problem = {}, .placement = {}};
    const auto most_live = static_cast<std::uint64_t>(room * static_cast<double>(problem.max_live));
    boxes.problem = joiner->join({.most_waste = 0.1, .alike = alike, .most_live = most_live});
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

/// Dissects each subject for a short time, which is often enough where an arena was full; the most promising come
/// first.
void dissect_all(const Problem& problem, std::uint64_t seed, Budget& budget, std::vector<Subject>& subjects,
                 Placement& best) {
  constexpr std::int64_t kEmbeddings = 40;
  Placement unpacked;
  for (Subject& subject : subjects) {
    if (best.height <= budget.goal || budget.spent() || !DissectionSearch::suits(subject.problem)) break;
    DissectionSearch search(subject.problem, kMostMoved, seed);
    Budget part = budget;
    part.goal = std::max(budget.goal, subject.problem.max_live);
    part.iterations = std::min(budget.iterations, budget.used + kEmbeddings * DissectionSearch::kIterations);
    search.run(part);
    budget.used = part.used;
    subject.dissection_cost = search.cost();
    keep_if_best(subject.problem, search.placement(), subject.placement);
    subject.unpack(unpacked);
    keep_if_best(problem, unpacked, best);
  }
  const auto cost = [](const Subject& subject) { return subject.dissection_cost; };
  if (cost(*std::ranges::min_element(subjects, {}, cost)) < kPromising)
    std::ranges::stable_sort(subjects, {}, cost);
  else
    std::rotate(subjects.begin(), subjects.begin() + 1, subjects.end());
}

/// One search through all stages, of each subject.
class Worker {
 public:
  Worker(const Problem& problem, std::vector<Subject> subjects, std::size_t number, std::uint64_t seed,
         const Budget& budget, const Placement& best)
      : problem_(problem),
        subjects_(std::move(subjects)),
        number_(number),
        seed_(mix64(seed + number * kSeedStep)),
        budget_(budget),
        best_(best) {}

  void run() {
    // Every other worker begins with the most promising subject.
    const std::size_t first = number_ % 2 == 0 ? 0 : (number_ + 1) / 2 % subjects_.size();
    const auto others = static_cast<double>(subjects_.size() - 1);
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      const auto before = static_cast<double>(i);
      const double begin = i == 0 ? 0.0 : kFirst + (kSubjects - kFirst) * (before - 1) / others;
      const double end = i == 0 && others > 0 ? kFirst : i == 0 ? kSubjects : begin + (kSubjects - kFirst) / others;
      search(subjects_[(first + i) % subjects_.size()], begin, end);
    }
    if (EjectionSearch::suits(problem_)) stage(1.0, budget_.goal, [&](Budget& part) { eject(problem_, part, best_); });
    if (best_.height > budget_.goal || budget_.solved_after == nullptr) return;
    std::int64_t least = *budget_.solved_after;
    while (budget_.used < least && !budget_.solved_after->compare_exchange_weak(least, budget_.used)) {
    }
  }

  const Placement& best() const { return best_; }
  std::int64_t used() const { return budget_.used; }

 private:
  void eject(const Problem& problem, Budget& part, Placement& placement) const {
    const double area_power = number_ % 2 == 0 ? 2.0 : 1.0;
    EjectionSearch(problem, area_power, seed_, part, placement).run(best_.height);
  }

  template <typename Search>
  void stage(double end, std::uint64_t goal, Search search) {
    if (best_.height <= goal) return;
    Budget part = budget_.until(end);
    part.goal = goal;
    search(part);
    budget_.used = part.used;
  }

  void keep(const Subject& subject) {
    subject.unpack(unpacked_);
    keep_if_best(problem_, unpacked_, best_);
  }

  void search(Subject& subject, double begin, double end) {
    const std::uint64_t goal = std::max(budget_.goal, subject.problem.max_live);
    const bool ejects = EjectionSearch::suits(subject.problem);
    Placement start;
    if (subject.dissection_cost < kPromising) {
      stage(begin + kDissection * (end - begin), goal, [&](Budget& part) {
        DissectionSearch dissection(subject.problem, kMostMoved, seed_);
        dissection.run(part);
        keep_if_best(subject.problem, dissection.placement(), subject.placement);
        if (dissection.cost() < kGood) start = dissection.placement();
      });
    } else {
      stage(begin + kOpening * (end - begin), goal,
            [&](Budget& part) { search_skyline(subject.problem, seed_, part, subject.placement); });
    }
    keep(subject);
    if (!ejects) return;
    if (start.offset.empty()) start = subject.placement;
    stage(end, goal, [&](Budget& part) { eject(subject.problem, part, start); });
    keep_if_best(subject.problem, start, subject.placement);
    keep(subject);
  }

  const Problem& problem_;
  std::vector<Subject> subjects_;
  std::size_t number_;
  std::uint64_t seed_;
  Budget budget_;
  Placement best_, unpacked_;
};

}  // namespace

// Which worker wins must not depend on which thread is faster: of those that reach the goal it is the one that needed
// the fewest iterations, and none stops before it has used as many.
void improve(const Problem& problem, std::uint64_t seed, int workers, Budget& budget, Placement& best) {
  if (best.height <= budget.goal || budget.spent()) return;
  budget.goal = std::max(budget.goal, near_bound(problem.max_live));
  if (best.height <= budget.goal) return;
  std::vector<Subject> subjects{{.joiner = {}, .problem = problem, .placement = best}};
  construct_boxes(problem, budget, subjects, best);
  if (best.height <= budget.goal) return;
  dissect_all(problem, seed, budget, subjects, best);
  if (best.height <= budget.goal) return;
  std::atomic<std::int64_t> solved_after = std::numeric_limits<std::int64_t>::max();
  budget.solved_after = &solved_after;
  std::vector<Worker> searches;
  for (std::size_t i = 0; i < static_cast<std::size_t>(workers); ++i)
    searches.emplace_back(problem, subjects, i, seed, budget, best);
  budget.solved_after = nullptr;
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < searches.size(); ++i)
    others.push_back(std::async(std::launch::async, [&, i] { searches[i].run(); }));
  searches[0].run();
  for (std::future<void>& other : others) other.get();
  const auto better = [](const Worker& a, const Worker& b) {
    return std::pair(a.best().height, a.used()) < std::pair(b.best().height, b.used());
  };
  const Worker& winner = *std::ranges::min_element(searches, better);
  best = winner.best();
  budget.used = winner.used();
}

}  // namespace bantam::planner
