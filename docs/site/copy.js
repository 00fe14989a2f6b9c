"use strict";
// A button beside each block of code copies it; of a terminal session, the commands without their output.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const text = block.querySelector("pre").textContent;
      const session = block.parentElement.classList.contains("highlight-console");
      try {
        await navigator.clipboard.writeText(session ? commands(text) : text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block.querySelector("pre"));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});

function commands(text) {
  // a command goes on in the next line after a backslash
  const lines = [];
  let open = false;
  for (const line of text.split("\n")) {
    if (!open && !/^[$#] /.test(line)) continue;
    lines.push(open ? line : line.slice(2));
    open = line.endsWith("\\");
  }
  return lines.join("\n") + "\n";
}
