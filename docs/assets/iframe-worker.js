// Pages opened from a disk may not start workers, and the search runs in one: there, run its script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = (script) =>
        new Promise((done, failed) => {
          const element = inside.document.createElement("script");
          element.src = new URL(script, location.href);
          element.onload = done;
          element.onerror = failed;
          inside.document.body.appendChild(element);
        });
      inside.importScripts = (...scripts) => scripts.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
      this.ready = load(address);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
