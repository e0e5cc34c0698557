// `pymdownx.arithmatex` leaves formulas as text between \( \) or \[ \]; KaTeX draws them.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim();
  const displayMode = text.startsWith("\\[");
  katex.render(text.slice(2, -2), place, { displayMode, throwOnError: false });
}
