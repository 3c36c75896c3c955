  const counters = /* kind, its letter, seconds of a window, most rows */ [];
  let opened;
  const open = () =>
    (opened ??= new Promise((done, fail) => {
      const asked = indexedDB.open("panstream");
      asked.onupgradeneeded = () => asked.result.createObjectStore("counts");
      asked.onsuccess = () => done(asked.result);
      asked.onerror = asked.onblocked = fail;
    }));
  // A transaction that writes excludes those of other tabs, and is on disk before the beacon leaves.
  const update = async (change) => {
    const stored = await open();
    return new Promise((done, fail) => {
      const transaction = stored.transaction("counts", "readwrite", { durability: "strict" });
      const counts = transaction.objectStore("counts");
      let result;
      counts.get("counts").onsuccess = (event) => {
        const before = event.target.result || "";
        const [after, found] = change(before);
        result = found;
        if (after != before) counts.put(after, "counts");
      };
      transaction.oncomplete = () => done(result);
      transaction.onerror = transaction.onabort = fail;
    });
  };
  const kindsOf = ({ url, referrer, event }) => {
    const kinds = ["row", /^(view|load|error)$/.test(event) ? event : "event"];
    const host = (/^https?:\/\/(?:www\.)?([^/:?#]+)/i.exec(referrer) || ["", ""])[1].toLowerCase();
    if (event == "view" && host != l.hostname.replace(/^www\./, "")) {
      kinds.push("entry");
      if (host) kinds.push("referral");
      if (/[?&]utm_campaign=[^&#]/.test(url)) kinds.push("campaign");
    }
    return kinds;
  };
  // As primitives/sender_counts.py: "86400 20775 v3e1" are three views and an entry in day 20775.
  const number = (text, kinds, now) => {
    if (text.startsWith("off")) return [text];
    const windows = {};
    for (const entry of text.split(";")) {
      const [length, last, used] = entry.split(" ");
      const counts = (used || "").match(/[a-z]\d+/g) || [];
      if (last) windows[length] = [+last, Object.fromEntries(counts.map((one) => [one[0], +one.slice(1)]))];
    }
    const entries = [];
    for (const [kind, letter, length, most] of counters) {
      const open = Math.floor(now / length);
      windows[length] ??= [open, {}];
      if (open > windows[length][0]) windows[length] = [open, {}];
      const [last, used] = windows[length];
      const next = (used[letter] || 0) + 1;
      if (open == last && kinds.includes(kind) && next <= most) {
        used[letter] = next;
        entries.push(`${kind}:${length}:${open}:${next}`);
      }
    }
    const written = ([length, [last, used]]) => `${length} ${last} ${Object.entries(used).flat().join("")}`;
    return [Object.entries(windows).map(written).join(";"), entries.join(" ")];
  };
  const asked = d.currentScript.dataset.counter;
  const count = async (row, post) => {
    let sent = false;
    const go = () => sent || (sent = true) && post(row);
    if (asked != "off") {
      addEventListener("pagehide", go);  // without numbers, if the page goes before they are stored
      try {
        row.sender_counts = await update((text) => number(text, kindsOf(row), Date.now() / 1000));
      } catch {
        opened = undefined;
      }
      removeEventListener("pagehide", go);
    }
    go();
  };
  const counter = (on) => update((text) => [on ? text.replace(/^off;?/, "") : text.startsWith("off") ? text : "off;" + text]);
