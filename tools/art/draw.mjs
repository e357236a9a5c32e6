// Draws the landing page's world map: Natural Earth's countries at 1:110 million (public domain, from the npm package `world-atlas`) in the
// Equal Earth projection, as SVG paths with integer coordinates.
//
// Usage: npm ci && node draw.mjs > ../../crates/portal/assets/world.tsv. Each line is a name, a tab and a path: `land`, `borders`, then the outline of
// each country by its ISO 3166-1 alpha-2 code. `crates/portal/src/landing/map.rs` uses the same projection.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { geoEqualEarth, geoEqualEarthRaw, geoStream } from 'd3-geo';
import countries from 'i18n-iso-countries';
import { feature, merge, mesh } from 'topojson-client';
import { presimplify, simplify } from 'topojson-simplify';

// Width of the map, and the parallel at its upper edge. Antarctica is cut off at the lower edge.
const WIDTH = 2000;
const TOP_DEGREES = 84;
const NOT_DRAWN = ['Antarctica', 'Fr. S. Antarctic Lands'];
// Smaller bends of a line are removed, in square degrees.
const BEND_MIN = 0.06;
// Smaller islands are removed, in square units.
const AREA_MIN = 6;

const radians = (degrees) => (degrees * Math.PI) / 180;
const SCALE = WIDTH / (2 * geoEqualEarthRaw(Math.PI, 0)[0]);
const top = geoEqualEarthRaw(0, radians(TOP_DEGREES))[1] * SCALE;
const projection = geoEqualEarth().scale(SCALE).translate([WIDTH / 2, top]).precision(0);

// The projected lines and rings of a shape, cut at the antimeridian.
function lines(shape) {
  const found = [];
  let current;
  const sink = {
    point: (x, y) => current.points.push([Math.round(x), Math.round(y)]),
    lineStart: () => found.push((current = { points: [], isRing: sink.isRing })),
    lineEnd: () => {},
    polygonStart: () => (sink.isRing = true),
    polygonEnd: () => (sink.isRing = false),
    sphere: () => {},
    isRing: false,
  };
  geoStream(shape, projection.stream(sink));
  return found;
}

// Converts a line to an SVG path with relative steps and without duplicate points.
function path({ points, isRing }) {
  const kept = points.filter(([x, y], at) => at === 0 || x !== points[at - 1][0] || y !== points[at - 1][1]);
  const [first, last] = [kept[0], kept.at(-1)];
  if (isRing && kept.length > 1 && first[0] === last[0] && first[1] === last[1]) kept.pop();
  if (isRing ? area(kept) < AREA_MIN : kept.length < 2) return '';
  const steps = kept.slice(1).map(([x, y], at) => `${x - kept[at][0]} ${y - kept[at][1]}`);
  return `M${first.join(' ')}l${steps.join(' ')}${isRing ? 'z' : ''}`.replaceAll(' -', '-');
}

function area(ring) {
  return Math.abs(ring.reduce((sum, [x, y], at) => sum + x * ring.at(at - 1)[1] - y * ring.at(at - 1)[0], 0)) / 2;
}

const drawn = (name, shape) => {
  const whole = lines(shape).map(path).join('');
  if (whole) console.log(`${name}\t${whole}`);
};

const file = createRequire(import.meta.url).resolve('world-atlas/countries-110m.json');
const atlas = simplify(presimplify(JSON.parse(readFileSync(file, 'utf8'))), BEND_MIN);
const all = atlas.objects.countries.geometries.filter(({ properties }) => !NOT_DRAWN.includes(properties.name));
drawn('land', merge(atlas, all));
drawn('borders', mesh(atlas, { type: 'GeometryCollection', geometries: all }, (one, other) => one !== other));
for (const country of all) {
  const code = country.id && countries.numericToAlpha2(country.id);
  if (code) drawn(code, feature(atlas, country));
}
