// Confusions, and held-out samples with what was said of them.
function matrixTable(answers) {
  const names = answers.names, rows = answers.matrix, most = rows.map(row => Math.max(1, row.reduce((a, b) => a + b, 0)));
  const head = element("tr", {}, element("td", {}), ...names.map(name => element("th", {scope: "col"}, element("span", {}, name))));
  const body = rows.map((row, label) => element("tr", {}, element("th", {scope: "row"}, names[label]), ...row.map((count, said) => {
    const share = count / most[label], color = label === said ? "--right" : "--heat";
    const cell = element("td", {title: `${exact(count)} of ${names[label]} answered as ${names[said]} (${shareText(share)})`}, count === 0 ? "" : exact(count));
    if (count > 0) cell.style.background = `rgba(var(${color}), ${(0.1 + 0.5 * share).toFixed(3)})`;
    return cell;
  })));
  return element("div", {class: "scrolls", tabindex: "0", role: "region", "aria-label": "Confusion matrix"},
    element("table", {class: "matrix"}, element("caption", {}, "Classes down, answers across."), element("thead", {}, head), element("tbody", {}, ...body)));
}

function classesTable(answers, where) {
  const places = answers.mean_iou !== undefined, lastFirst = v => v === null ? 2 : v;
  sortableTable(where, [
    {title: "Class", text: true, kind: "name", value: c => c.name, cell: c => c.name},
    {title: places ? "Pixels" : "Samples", value: c => c.count, cell: c => exact(c.count)},
    {title: "Precision", value: c => c.precision, cell: c => shareText(c.precision)},
    {title: "Recall", ascending: true, value: c => lastFirst(c.recall), cell: c => shareText(c.recall)},
    ...(places ? [{title: "IoU", ascending: true, value: c => lastFirst(c.iou), cell: c => shareText(c.iou)}] : []),
  ], answers.classes, places ? 4 : 3, 12);
}

function showConfusion(run) {
  const where = document.getElementById("confusion"), words = document.getElementById("confusion-words"), answers = run.held_out;
  where.replaceChildren();
  if (!answers) { words.textContent = run.no_held_out; return; }
  if (!answers.classes) {
    words.textContent = `The model answers with ${answers.task === "values" ? "numbers" : "several classes at once"}: there is no confusion matrix.`;
    return;
  }
  const pairs = answers.confusions.slice(0, 3).map(c => `${answers.names[c[0]]} as ${answers.names[c[1]]} (${exact(c[2])}, ${shareText(c[3])})`);
  words.textContent = (pairs.length > 0 ? `Most often: ${pairs.join("; ")}.` : "Nothing is confused.") + ` Weights: ${run.weights_file}.`;
  if (answers.matrix) where.append(matrixTable(answers));
  const side = element("div", {});
  classesTable(answers, side);
  where.append(side);
}

const saidText = (answers, said) => answers.task === "values" ? `${said[0]}: ${+said[1].toPrecision(4)}` : `${said[0]} ${shareText(said[1])}`;

function picture(source, words, small) {
  return element("img", {src: "data:image/png;base64," + source, alt: words, ...(small ? {class: "small"} : {})});
}
function sampleFigure(answers, sample, number) {
  const said = sample.said.map(s => saidText(answers, s)), wrong = isWrong(sample);
  const first = answers.task === "values" ? said.join(", ") : said[0] || "nothing";
  const words = `${sample.name}${sample.truth ? `, which is ${sample.truth}` : ""}; answered: ${said.join(", ") || "nothing"}`;
  const figure = element("figure", {"aria-label": `${number}: ${words}`});
  if (sample.image) figure.append(picture(sample.image, "Picture of " + words, sample.small));
  if (sample.said_mask)
    figure.append(element("div", {class: "masks"}, ...(sample.truth_mask ? [picture(sample.truth_mask, "Its mask, a colour a class", true)] : []),
      picture(sample.said_mask, "The answered mask, a colour a class", true)));
  figure.append(element("b", {}, sample.truth || sample.name.replace(/^.*\//, "")), element("span", {class: wrong ? "said wrong" : "said"}, first));
  const others = sample.said.slice(1).filter(one => one[1] >= 0.005).map(one => saidText(answers, one));
  if (answers.task !== "values" && others.length > 0) figure.append(element("span", {}, "then " + others.join(", ")));
  const loss = sample.loss === null ? "not finite" : +sample.loss.toPrecision(3);
  figure.append(element("span", {}, `loss ${loss}` + (answers.task === "segmentation" ? `, ${shareText(sample.right)} right` : "")));
  if (sample.truth) figure.append(element("span", {class: "file", title: sample.name}, sample.name.replace(/^.*\//, "")));
  return figure;
}

// Of answers that are right or wrong the worst are wrong ones, as long as there are any.
function worstOf(answers) {
  const wrong = answers.worst.filter(isWrong), judged = answers.task === "classes" && answers.worst.every(sample => sample.right !== null);
  return !judged ? {list: answers.worst, which: "with the largest loss", note: ""}
    : wrong.length > 0 ? {list: wrong, which: "answered wrongly, with the largest loss", note: ""}
    : {list: answers.worst, which: "with the largest loss", note: " They are answered rightly, but with the least certainty."};
}
const isWrong = sample => sample.right !== null && sample.right < 0.5;

// A few of a list, and a button for the others.
const samplesShown = {worst: false, random: false};
function fillSamples(answers, name, list) {
  const where = document.getElementById(name), few = 12, all = samplesShown[name];
  where.replaceChildren(...list.slice(0, all ? list.length : few).map((sample, i) => sampleFigure(answers, sample, i + 1)));
  const more = document.getElementById(name + "-more");
  more.hidden = list.length <= few;
  more.textContent = all ? "Show fewer" : `Show all ${exact(list.length)}`;
  more.onclick = () => { samplesShown[name] = !all; fillSamples(answers, name, list); };
}

function showSamples(run) {
  const answers = run.held_out;
  for (const list of ["worst", "random"]) {
    const where = document.getElementById(list), words = document.getElementById(list + "-words");
    where.replaceChildren();
    document.getElementById(list + "-more").hidden = true;
    if (!answers) { words.textContent = run.no_held_out; continue; }
    const worst = worstOf(answers);
    const all = answers.samples === answers.of ? `all ${exact(answers.of)}` : `${exact(answers.samples)} of ${exact(answers.of)}`;
    const mean = `mean loss ${answers.loss === null ? "not finite" : +answers.loss.toPrecision(4)}` + (answers.accuracy === null ? "" : `, ${shareText(answers.accuracy)} right`);
    const samples = list === "worst" ? worst.list : answers.random, count = samples.length, what = answers.has_pictures ? "images" : "samples";
    words.textContent = list === "worst"
      ? `${count} ${what} ${worst.which}, of ${all} held-out ${what} (${mean}).${worst.note} First what it is, then what the model answers.`
      : `${count} held-out ${what} chosen by the seed alone, in the order of the set.`;
    if (answers.no_pictures) words.textContent += " " + answers.no_pictures;
    fillSamples(answers, list, samples);
  }
}
