// Runs checks and reports each result with its duration.

// Thrown by a failed `require`; skips the rest of its group.
class GroupAborted extends Error {}

export class Report {
  passed = 0;
  failed = 0;

  // `takeScreenshot(name)` is called when a check fails.
  constructor(takeScreenshot) {
    this.takeScreenshot = takeScreenshot;
  }

  // Runs a check. Prints what `act` returns next to it. Returns whether it passed.
  async check(claim, act) {
    const start = performance.now();
    try {
      const detail = await act();
      this.passed += 1;
      print('ok', start, claim, detail);
      return true;
    } catch (error) {
      this.failed += 1;
      print('FAIL', start, claim);
      console.log(indent(error.message));
      await this.takeScreenshot(`failed-${slug(claim)}`).catch(() => {});
      return false;
    }
  }

  // Runs a check that the rest of its group depends on.
  async require(claim, act) {
    if (!(await this.check(claim, act))) throw new GroupAborted(claim);
  }

  // Runs a group of checks that is independent of other groups.
  async group(title, act) {
    console.log(`\n${title}`);
    const start = performance.now();
    try {
      await act();
    } catch (error) {
      if (error instanceof GroupAborted) {
        console.log('      skipped the rest of this group');
      } else {
        this.failed += 1;
        print('FAIL', start, title);
        console.log(indent(error.stack));
      }
    }
  }

  // Prints the summary. Returns whether all checks passed.
  finish() {
    console.log(`\n${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0;
  }
}

function print(outcome, start, claim, detail) {
  const seconds = ((performance.now() - start) / 1000).toFixed(2);
  console.log(`${outcome.padEnd(4)} ${seconds.padStart(6)} s  ${claim}${detail ? `: ${detail}` : ''}`);
}

function indent(text) {
  const lines = text.replace(/\u001b\[\d+m/g, '').trimEnd().split('\n');
  return lines.slice(0, 20).map((line) => `      ${line}`).join('\n');
}

function slug(claim) {
  return claim.toLowerCase().replace(/[^a-z0-9]+/g, '-').slice(0, 60);
}
