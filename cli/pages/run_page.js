// The page: figures, tables of runs, what the reader chooses, and what changes while a run is under way.
let data = JSON.parse(document.getElementById("data").textContent);

function lastOf(run, name) {
  const curve = run.curves.find(c => c.name === name);
  return curve && curve.y.length > 0 ? curve.y[curve.y.length - 1] : null;
}
// Half of the values lie below it: the first updates are slow, and pauses are.
function medianOf(run, name) {
  const curve = run.curves.find(c => c.name === name);
  if (!curve || curve.y.length === 0) return null;
  return curve.y.slice().sort((a, b) => a - b)[Math.floor(curve.y.length / 2)];
}
const bestText = run => run.best ? +run.best.value.toPrecision(4) : "–";

function showTiles() {
  const where = document.getElementById("tiles"), run = data.runs[0];
  where.replaceChildren();
  document.getElementById("state").textContent = data.live ? "Under way: the page follows the run." : "";
  document.getElementById("state").hidden = !data.live;
  where.hidden = data.runs.length > 1;
  if (where.hidden) return;
  const rate = medianOf(run, "images_per_s"), memory = lastOf(run, "peak_bytes"), tested = Object.entries(run.test).filter(([name]) => name !== "samples");
  if (run.best) where.append(tile(bestText(run), "best validation " + run.best.metric, `epoch ${run.best.epoch}`));
  if (run.held_out && run.held_out.mean_iou !== undefined && !(run.best && run.best.metric === "mean_iou"))
    where.append(tile(valueText("mean_iou", run.held_out.mean_iou), "mean IoU", `of ${exact(run.held_out.samples)} held-out images`));
  for (const [name, value] of tested.slice(0, 2)) where.append(tile(valueText(name, value), "test " + name, "at the end"));
  const epoch = run.epoch_loss, loss = epoch ? epoch.loss : lastOf(run, "loss");
  if (loss !== null) where.append(tile(valueText("loss", loss), "training loss", epoch ? `mean of epoch ${epoch.epoch}` : "of the last logged updates"));
  where.append(tile(longTime(run.seconds), "of training", `${exact(run.updates)} updates, ${run.sessions} session${run.sessions === 1 ? "" : "s"}`));
  if (rate !== null) where.append(tile(exact(rate), "images a second", "median"));
  if (memory !== null) where.append(tile(bytes(memory), "in use at the peak", run.device));
  where.append(tile(run.state, "state", run.reason || `${run.epoch} of ${run.epochs} epochs done`));
}

function plainTable(heads, rows) {
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((h, i) => element("th", {scope: "col", class: i === 0 ? "text" : ""}, h)))),
    element("tbody", {}, ...rows));
}
function showRuns() {
  const several = data.runs.length > 1;
  document.getElementById("runs").hidden = document.getElementById("chooser").hidden = !several;
  if (!several) return;
  const metric = [...new Set(data.runs.filter(run => run.best).map(run => run.best.metric))].join(", ");
  const rows = data.runs.map((run, r) => element("tr", {}, element("th", {scope: "row", class: "text"}, element("span", {class: "swatch", style: `background: ${runColor(r)}`}), run.name),
    ...[run.state, `${run.epoch}/${run.epochs}`].map(text => element("td", {}, text)), element("td", {class: run.is_best ? "best" : ""}, String(bestText(run)) + (run.is_best ? " ★" : "")),
    ...[run.best ? run.best.epoch : "–", longTime(run.seconds), medianOf(run, "images_per_s"), lastOf(run, "peak_bytes")].map((value, i) =>
      element("td", {}, value === null ? "–" : i === 2 ? exact(value) : i === 3 ? bytes(value) : String(value)))));
  document.getElementById("runs-table").replaceChildren(plainTable(["Run", "State", "Epoch", "Best " + metric, "In epoch", "Trained", "Images/s", "Peak memory"], rows));
  const changed = data.differences.map(d => element("tr", {}, element("th", {scope: "row", class: "text"}, d.name),
    ...d.values.map(value => element("td", {title: value}, value === "" ? "–" : value))));
  document.getElementById("differences").replaceChildren(changed.length > 0 ? plainTable(["Key", ...data.runs.map(run => run.name)], changed)
    : element("p", {}, "Their configurations are the same."));
  choices("chosen-run", data.runs.map((run, r) => ({name: run.name, on: () => seen.run === r, choose: () => { seen.run = r; layersShown.all = samplesShown.worst = samplesShown.random = false; }})));
}

// Buttons of which those that are on are pressed.
function choices(id, options) {
  const where = document.getElementById(id);
  const buttons = options.map(option => {
    const button = element("button", {type: "button", "aria-pressed": String(option.on())}, option.name);
    button.onclick = () => {
      option.choose();
      buttons.forEach((other, i) => other.setAttribute("aria-pressed", String(options[i].on())));
      remember();
      showCharts(data.runs);
      showRun();
    };
    return button;
  });
  where.replaceChildren(...buttons);
}
function remember() { try { sessionStorage.setItem("bantam report", JSON.stringify(seen)); } catch { /* a page that may not store begins anew */ } }
function recall() { try { Object.assign(seen, JSON.parse(sessionStorage.getItem("bantam report")) || {}, {at: null}); } catch { /* likewise */ } }

function showFacts(run) {
  const rows = [["Model", `${run.model} (${run.config})`], ["Device", `${run.device}, ${run.precision}`], ["Folder", run.path], ["Began", run.created],
                ["Command", run.command], ["Versions", run.versions], ["Git commit", run.git_commit]].filter(row => row[1]);
  document.getElementById("facts").replaceChildren(element("table", {}, element("tbody", {}, ...rows.map(([name, value]) =>
    element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, value))))));
  document.getElementById("config").textContent = run.config_text;
}
// The sections that are of one run.
function showRun() {
  seen.run = Math.min(seen.run, data.runs.length - 1);
  const run = data.runs[seen.run];
  showConfusion(run);
  showSamples(run);
  showLayers(run);
  showFacts(run);
}

function showAll() {
  const first = data.runs[0];
  document.title = document.getElementById("title").textContent = data.title;
  document.getElementById("headline").textContent = data.headline;
  document.getElementById("subtitle").textContent = data.runs.length > 1 ? data.runs.map(run => run.name).join(", ")
    : `${first.model} on ${first.device}, ${first.precision}, ${first.epochs} epoch${first.epochs === 1 ? "" : "s"}`;
  showTiles();
  showRuns();
  showLegend(data.runs);
  showCharts(data.runs);
  showRun();
}

// Of a page that `bantam train --serve` serves: the run's news every two seconds, until its server ends.
async function follow() {
  try {
    const answer = await fetch("data.json?seen=" + encodeURIComponent(data.version));
    if (answer.status === 200) {
      const before = data.runs;
      data = await answer.json();
      data.runs.forEach((run, r) => { if (run.tensors === null) Object.assign(run, {tensors: before[r].tensors, has_gradients: before[r].has_gradients}); });
      showAll();
    }
  } catch {
    document.getElementById("state").textContent = "The run's server has ended: this is the last that it told. `bantam report` writes a page with the final figures.";
    return;
  }
  setTimeout(follow, 2000);
}

recall();
choices("axes", ["updates", "epochs", "time"].map(axis => ({name: axis, on: () => seen.axis === axis, choose: () => { seen.axis = axis; seen.at = null; }})));
choices("scales", [{name: "smoothed", on: () => seen.smooth, choose: () => { seen.smooth = !seen.smooth; }},
                   {name: "logarithmic", on: () => seen.log, choose: () => { seen.log = !seen.log; }}]);
showAll();
addEventListener("resize", redraw);
if (data.live) setTimeout(follow, 2000);
