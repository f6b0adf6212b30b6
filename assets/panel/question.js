/* Keys in the form of a question: without this the notebook would take arrows and Enter for its cells. */
(function own(mark, tries = 0) {
  const form = mark.closest(".ls-predict");
  if (!form || !form.querySelector("button")) {
    if (tries < 200) setTimeout(() => own(mark, tries + 1), 25);
    return;
  }
  for (const control of form.querySelectorAll("input, button")) control.dataset.lmSuppressShortcuts = "true";
  const back = () => form.closest(".jp-Cell")?.focus(); // to the cell, from which arrows lead on
  form.addEventListener("keydown", event => event.key === "Escape" && back());
  const committed = new MutationObserver(back);
  committed.observe(form.querySelector("button"), { attributes: true, attributeFilter: ["disabled"] });
})
