// What the tour claims, whether it held, and how long it took.

// Nothing that follows a failed `must` in its chapter can hold.
class GivenUp extends Error {}

export class Report {
  passed = 0;
  failed = 0;

  // `picture(name)` shows what the browser shows when a claim fails.
  constructor(picture) {
    this.picture = picture;
  }

  // Checks a claim; what `act` gives back is printed beside it. Whether it held.
  async claim(sentence, act) {
    const start = performance.now();
    try {
      const detail = await act();
      this.passed += 1;
      say('ok', start, sentence, detail);
      return true;
    } catch (error) {
      this.failed += 1;
      say('FAIL', start, sentence);
      console.log(indented(error.message));
      await this.picture(`failed-${slug(sentence)}`).catch(() => {});
      return false;
    }
  }

  // A claim without which the rest of its chapter makes no sense.
  async must(sentence, act) {
    if (!(await this.claim(sentence, act))) throw new GivenUp(sentence);
  }

  // A group of claims that stand or fall apart from the other groups.
  async chapter(title, act) {
    console.log(`\n${title}`);
    const start = performance.now();
    try {
      await act();
    } catch (error) {
      if (error instanceof GivenUp) {
        console.log('      the rest of this chapter was not tried');
      } else {
        this.failed += 1;
        say('FAIL', start, title);
        console.log(indented(error.stack));
      }
    }
  }

  // The last line; whether all held.
  end() {
    console.log(`\n${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0;
  }
}

function say(outcome, start, sentence, detail) {
  const seconds = ((performance.now() - start) / 1000).toFixed(2);
  console.log(`${outcome.padEnd(4)} ${seconds.padStart(6)} s  ${sentence}${detail ? `: ${detail}` : ''}`);
}

function indented(text) {
  const lines = text.replace(/\u001b\[\d+m/g, '').trimEnd().split('\n');
  return lines.slice(0, 20).map((line) => `      ${line}`).join('\n');
}

function slug(sentence) {
  return sentence.toLowerCase().replace(/[^a-z0-9]+/g, '-').slice(0, 60);
}
