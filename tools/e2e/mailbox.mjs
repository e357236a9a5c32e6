// The emails that the service has sent, read from the files of the SMTP server.

import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

import { eventually } from './wait.mjs';

const EMAIL_MAX_MS = 20_000;

export class Mailbox {
  #taken = new Set();

  constructor(folder) {
    this.folder = folder;
  }

  // Takes the oldest email to an address that contains `part` in its subject or text. Each email is taken once.
  async take(address, part = '') {
    const matches = (email) => email.to.includes(address) && `${email.subject}\n${email.text}`.includes(part);
    const found = await eventually(
      `an email to ${address}${part && ` with “${part}”`}`,
      () => this.#remaining().find(({ email }) => matches(email)),
      EMAIL_MAX_MS,
    );
    this.#taken.add(found.name);
    if (!found.email.subject.includes('Ipseity')) throw new Error(`the subject lacks the product name: “${found.email.subject}”`);
    return found.email;
  }

  #remaining() {
    const names = readdirSync(this.folder).filter((name) => name.endsWith('.json') && !this.#taken.has(name));
    return names.sort().map((name) => ({ name, email: JSON.parse(readFileSync(path.join(this.folder, name), 'utf8')) }));
  }
}

// The link in an email to a page with one button.
export function linkIn(email) {
  const links = email.text.match(/https:\/\/\S+\/link\/[^\s>"]+/g) ?? [];
  if (new Set(links).size !== 1) throw new Error(`expected one link in “${email.subject}”, found ${links.length}`);
  return links[0];
}
