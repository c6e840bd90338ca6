// Runs before the page is drawn, so that a page does not flash in the other colours.
(() => {
  let theme = "";
  try {
    theme = localStorage.getItem("theme") || "";
  } catch {
    // A browser may keep no storage for files.
  }
  if (theme) document.documentElement.dataset.theme = theme;
})();
