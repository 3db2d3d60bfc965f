// Takes a picture of a trace: node pictures.mjs PLAYWRIGHT TOOL URL TRACE FILE
import { createRequire } from 'node:module';

const [, , playwright, tool, url, trace, file] = process.argv;
const { chromium } = createRequire(`${playwright}/`)('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--no-first-run'];
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const browser = await chromium.launch({ executablePath, args: flags });
const page = await browser.newPage({ viewport: { width: 1500, height: tool === 'phoenix' ? 1130 : 860 }, colorScheme: 'dark' });
await page.route('**/*', (route) =>
  ['127.0.0.1', 'localhost'].includes(new URL(route.request().url()).hostname) ? route.continue() : route.abort(),
);
const click = async (what) => {
  await page.click(what, { timeout: 60_000 });
  await page.waitForTimeout(1_500);
};
const dismiss = (what) => click(what).catch(() => {});

const shown = {
  async phoenix() {
    await page.goto(`${url}/redirects/traces/${trace}`, { timeout: 120_000 });
    await click('[aria-label="Collapse side navigation"]');
    await click('text="advisor tools"');
    await click('role=tab[name="Attributes"]');
  },
  async mlflow() {
    await page.goto(`${url}/#/experiments/0/traces`, { timeout: 120_000 });
    await dismiss('text="Got it"');
    await dismiss('[aria-label="Close"]');
    await click('text=/A day in Porto/ >> nth=0');
    await click('[aria-label="Full screen"]');
    await click('[aria-label="Show execution timeline"]');
    await click('text="Attributes"');
    await page.mouse.move(376, 600); // what divides the two
    await page.mouse.down();
    for (let x = 380; x <= 800; x += 20) await page.mouse.move(x, 600);
    await page.mouse.up();
  },
};
await shown[tool]();
await page.mouse.move(1490, 5);
await page.waitForTimeout(3_000);
await page.screenshot({ path: file });
await browser.close();
