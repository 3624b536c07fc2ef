// Texts whose colour stands out too little from what is behind them (WCAG AA: a ratio of 4.5).
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", {
    willReadFrequently: true,
  });

  function mixed(colours) {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }

  function luminance(colours) {
    const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = mixed(colours).map((value) => linear(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function behind(element) {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.unshift(getComputedStyle(each).backgroundColor);
    return found;
  }

  function ratio(element) {
    const back = behind(element);
    const [one, other] = [luminance([...back, getComputedStyle(element).color]), luminance(back)];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  }

  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const counts = (element) =>
    hasText(element) && element.checkVisibility() && !element.closest("svg, option, .visually-hidden");
  const poor = [...document.querySelectorAll("main *, header *")].filter(
    (element) => counts(element) && ratio(element) < 4.5,
  );
  return [
    ...new Set(
      poor.map((element) => `${element.className}: ${element.textContent.slice(0, 30)}: ${ratio(element).toFixed(2)}`),
    ),
  ];
}
