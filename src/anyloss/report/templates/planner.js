"use strict";
(() => {
  const at = (name) => document.getElementById("plan-" + name);
  const plan = JSON.parse(at("data").textContent);
  const [tp, fn, fp, tn] = plan.cells;
  const rows = tp[0] + fn[0] + fp[0] + tn[0];
  const write = (name, text) => { at(name).textContent = text; };
  const decimal = (value, digits = 3) => value === null || !Number.isFinite(value) ? "undefined" : value.toFixed(digits);
  const share = (part, whole) => whole ? (100 * part / whole).toFixed(1) + " %" : "undefined";
  const amount = (value) => Number.isFinite(value) ? value.toLocaleString("en", { maximumFractionDigits: 1 }) : "undefined";
  const label = (value) => /^\d(\.\d{1,2})?$/.test(String(value)) ? value.toFixed(3) : String(value);
  const price = (name) => at(name).valueAsNumber >= 0 ? at(name).valueAsNumber : NaN;
  const cost = (k) => 1000 * (price("fn-cost") * fn[k] + price("fp-cost") * fp[k]) / rows;

  function show() {
    const k = at("at").valueAsNumber;
    write("threshold", label(plan.threshold[k]));
    for (const [name, cells] of Object.entries({ tp, fn, fp, tn })) {
      write(name, amount(cells[k]));
      at(name).parentElement.style.setProperty("--share", cells[k] / rows);
    }
    write("score", decimal(plan.score[k]));
    write("interval", decimal(plan.low[k]) + " to " + decimal(plan.high[k]) + ", for one threshold fixed beforehand");
    write("recall", share(tp[k], tp[k] + fn[k]));
    write("precision", share(tp[k], tp[k] + fp[k]));
    write("predicted", amount(1000 * (tp[k] + fp[k]) / rows));
    write("cost", amount(cost(k)));
    const costs = plan.threshold.map((_, i) => cost(i));
    const least = costs.indexOf(Math.min(...costs));
    write("least", least < 0 ? "enter costs of at least 0" : amount(costs[least]) + " at " + label(plan.threshold[least]));
    let tested = k === plan.start ? "This is the threshold of the model. " : "";
    if (plan.tested.includes(k)) {
      tested += k === plan.start && plan.certified
        ? "It was tested for the certificate and is certified."
        : "It was tested for the certificate.";
    } else if (plan.tested.length) {
      tested += "It was not tested for the certificate, which does not hold here.";
    }
    write("tested", tested);
  }
  for (const name of ["at", "fn-cost", "fp-cost"]) at(name).addEventListener("input", show);
  show();
  document.getElementById("planner").hidden = false;
})();
