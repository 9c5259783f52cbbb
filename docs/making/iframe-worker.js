// A browser starts no worker from a file on disk. The search of the site then runs in a hidden frame instead, so that it works
// in a folder that was downloaded or sent by mail, without a server. Elsewhere this does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.document.write("<!doctype html><body></body>")
      this.inside.document.close()
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.inside.document.createElement("script")
      this.loaded = new Promise(done => script.addEventListener("load", done))
      script.src = url
      this.inside.document.body.append(script)
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })))
    }
  }
}
