(() => {
  const { navigator: n, document: d, location: l, history: h } = window;
  const off = n.doNotTrack == 1 || window.doNotTrack == 1 || n.globalPrivacyControl;
  const to = d.currentScript.src.replace(/[^/]*$/, "v1/beacon");
  let url, referrer = d.referrer;
  const count = (row, post) => post(row);
  // Drawn afresh for every beacon, so that one that is delivered twice is counted once.
  const post = (row) => n.sendBeacon(to, JSON.stringify({ ...row, once: Math.random() }));
  const send = (event, value) => off || count({ url, referrer, event, value }, post);
  const view = () => {
    const now = l.pathname + l.search;
    if (now == url) return;
    if (url) referrer = l.origin + url;
    url = now;
    send("view");
  };
  const push = h.pushState;
  h.pushState = function () {
    push.apply(this, arguments);
    view();
  };
  addEventListener("popstate", view);
  addEventListener("error", () => send("error"));
  addEventListener("load", () => send("load", Math.round(performance.now())));
  window.panstream = send;
  view();
})();
