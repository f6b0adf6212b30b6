/* What a panel needs of the page it stands in: keys, names for screen readers, and word of what the page can do.
   Started once per page by the first panel; every panel then calls `adopt`. */
(function () {
  const own = "input, textarea, select, .noUi-handle, .cm-editor, .jp-RenderedHTMLCommon pre";

  function onKey(event) {
    const panel = event.target.closest && event.target.closest(".lsp-panel");
    const keys = JSON.parse(panel?.querySelector("[data-panel-keys]")?.dataset.panelKeys || "{}");
    const action = keys[(event.shiftKey ? "Shift+" : "") + event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest(own)) return;
    const button = event.target.closest("button");
    if (button && event.key === " ") return; // a button reached by Tab is pressed by the space bar, as everywhere
    event.preventDefault();
    event.stopImmediatePropagation(); // else the notebook would copy the cell on C, or scroll on the space bar
    const target = panel.querySelector(".lsp-" + action);
    if (target && !target.disabled) target.click();
  }

  function onClick(event) {
    const panel = event.target.closest && event.target.closest(".lsp-panel");
    if (panel && event.detail > 0 && event.target.closest("button")) panel.focus({ preventScroll: true });
  }

  function tell(panel) {
    const ear = panel.querySelector(".lsp-ear input");
    if (!ear) return;
    const page = (window.lockstepPage.count += 1);
    ear.value = JSON.stringify({
      bokeh: (window.Bokeh && window.Bokeh.version) || "",
      dark: document.body.dataset.jpThemeLight === "false",
      since: performance.timeOrigin, // another one after a reload
      view: Number(panel.dataset.view), // another one when its notebook was closed and opened again
      message: page,
    });
    ear.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function name(panel) {
    panel.tabIndex = 0;
    panel.setAttribute("role", "group");
    panel.setAttribute("aria-label", panel.querySelector("[data-panel-name]")?.dataset.panelName || "Lockstep panel");
    for (const handle of panel.querySelectorAll(".noUi-handle")) handle.setAttribute("aria-label", "position in the record");
    for (const choice of panel.querySelectorAll(".lsp-select select")) choice.setAttribute("aria-label", "variable to show");
    const words = panel.querySelector(".lsp-words");
    if (words) words.setAttribute("aria-live", "polite");
  }

  function showRanks(source) { // long code opens where the ranks are
    const code = source.querySelector(".ls-code"), top = source.querySelector(".ls-top");
    if (!code || !top) return;
    const place = element => element.getBoundingClientRect();
    code.scrollTop += place(top).top - place(code).top;
    const here = [...code.querySelectorAll(".ls-here")]; // lines that go on below may have pushed ranks out of sight
    const below = here.length ? place(here.at(-1)).bottom - place(code).bottom : 0;
    if (below > 0) code.scrollTop += Math.min(below, place(here[0]).top - place(code).top);
  }

  function watch(panel) {
    const source = panel.querySelector(".lsp-source");
    if (!source) return;
    showRanks(source);
    new MutationObserver(() => showRanks(source)).observe(source, { childList: true, subtree: true });
    new ResizeObserver(() => showRanks(source)).observe(source); // another width breaks lines elsewhere
  }

  function canvases(root) {
    return [...root.querySelectorAll("*")].flatMap(part =>
      part.tagName === "CANVAS" ? [part] : part.shadowRoot ? canvases(part.shadowRoot) : []);
  }

  function hasInk(canvas) {
    const { width, height } = canvas;
    const ink = width * height > 0 && canvas.getContext("2d")?.getImageData(0, 0, width, height).data;
    return Boolean(ink) && ink.some(byte => byte > 0);
  }

  function uncover(view) { // Bokeh answers when it has laid itself out; on a busy machine it paints much later
    if (!view.classList.contains("lsp-drawn")) delete view.dataset.painted;
    else if (view.dataset.painted || !view.isConnected) return;
    else if (canvases(view).some(hasInk)) view.dataset.painted = "";
    else setTimeout(() => uncover(view), 50);
  }

  function adopt(mark, tries = 0) {
    const panel = mark.closest(".lsp-panel");
    if (panel && panel.isConnected && panel.querySelector(".lsp-ear input")) {
      panel.dataset.view = String((window.lockstepPage.views += 1));
      name(panel);
      watch(panel);
      for (const view of panel.querySelectorAll(".lsp-view")) {
        uncover(view);
        new MutationObserver(() => uncover(view)).observe(view, { attributes: true, attributeFilter: ["class"] });
      }
      tell(panel);
    } else if (tries < 200) setTimeout(() => adopt(mark, tries + 1), 25);
  }

  if (!window.lockstepPage) {
    window.lockstepPage = { adopt, count: 0, views: 0, tellAll: () => document.querySelectorAll(".lsp-panel").forEach(tell) };
    window.addEventListener("keydown", onKey, true);
    document.addEventListener("click", onClick, true);
    new MutationObserver(() => window.lockstepPage.tellAll()).observe(document.body, {
      attributes: true,
      attributeFilter: ["data-jp-theme-light"],
    });
  }
  return window.lockstepPage;
})()
