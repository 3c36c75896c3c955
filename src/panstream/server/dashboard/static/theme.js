// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  const chosen = localStorage.getItem("panstream-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
