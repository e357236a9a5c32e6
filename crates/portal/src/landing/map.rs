//! The world map in the Equal Earth projection, or the part around a marker and its accuracy circle.
//!
//! `tools/art/draw.mjs` draws the paths with the same projection. The circle has a size on the ground and uses map units. The dot
//! and its label have a size on the screen and are positioned in percent, so that they stay the same size on narrow screens.

use std::f64::consts::PI;
use std::fmt::Write;

const WORLD: &str = include_str!("../../assets/world.tsv");
const WIDTH: f64 = 2000.0;
const HEIGHT: f64 = 868.0;
const TOP_LATITUDE: f64 = 84.0;
const EARTH_RADIUS_KM: f64 = 6371.0;
/// Number of points that approximate the circle.
const CIRCLE_POINTS: u32 = 72;
/// Circles with a smaller part of the view as their radius are hidden by the dot.
const VISIBLE_RADIUS_MIN: f64 = 0.007;
/// Width of the part around a marker, about that of a continent.
const CONTINENT_WIDTH: f64 = 560.0;
/// The circle takes at most this part of the width and of the height of the view, except at the edge of the map.
const CIRCLE_WIDTH_MAX: f64 = 0.5;
const CIRCLE_HEIGHT_MAX: f64 = 0.8;

/// The part of the map that is shown, with the proportions of the whole.
struct MapView {
    left: f64,
    top: f64,
    width: f64,
}

impl MapView {
    const WORLD: Self = Self { left: 0.0, top: 0.0, width: WIDTH };

    /// The part around a point, wide enough for a circle with these edges.
    fn around((x, y): (f64, f64), circle: &[(f64, f64)]) -> Self {
        let reach_x = circle.iter().map(|(edge, _)| (edge - x).abs()).fold(0.0, f64::max);
        let reach_y = circle.iter().map(|(_, edge)| (edge - y).abs()).fold(0.0, f64::max);
        let for_height = 2.0 * reach_y / CIRCLE_HEIGHT_MAX * WIDTH / HEIGHT;
        let width = CONTINENT_WIDTH.max(2.0 * reach_x / CIRCLE_WIDTH_MAX).max(for_height).min(WIDTH);
        let view = Self { left: 0.0, top: 0.0, width };
        Self {
            left: (x - width / 2.0).clamp(0.0, WIDTH - width),
            top: (y - view.height() / 2.0).clamp(0.0, HEIGHT - view.height()),
            width,
        }
    }

    fn height(&self) -> f64 {
        self.width * HEIGHT / WIDTH
    }

    /// A point in percent of the view.
    fn percent(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (100.0 * (x - self.left) / self.width, 100.0 * (y - self.top) / self.height())
    }
}

/// A location to mark on the map.
pub(super) struct MapMarker<'a> {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
    pub(super) accuracy_km: Option<u16>,
    /// ISO 3166-1 alpha-2 code of the country to highlight.
    pub(super) country: Option<&'a str>,
    /// Label next to the dot, as HTML.
    pub(super) label: &'a str,
}

impl MapMarker<'_> {
    /// The accuracy circle, clockwise from the north; empty if the accuracy is unknown. Points beyond the edge of the map are
    /// clipped when drawn.
    fn accuracy_circle(&self) -> Vec<(f64, f64)> {
        let Some(km) = self.accuracy_km else { return Vec::new() };
        let (latitude, distance) = (to_radians(self.latitude), (f64::from(km) / EARTH_RADIUS_KM).min(PI / 2.0));
        let point = |step: u32| {
            let bearing = f64::from(step) * 2.0 * PI / f64::from(CIRCLE_POINTS);
            let sine = latitude.sin() * distance.cos() + latitude.cos() * distance.sin() * bearing.cos();
            let longitude_offset =
                (bearing.sin() * distance.sin() * latitude.cos()).atan2(distance.cos() - latitude.sin() * sine);
            to_map_point(self.longitude + to_degrees(longitude_offset), to_degrees(sine.clamp(-1.0, 1.0).asin()))
        };
        (0..CIRCLE_POINTS).map(point).collect()
    }

    /// Whether the circle is larger than the dot.
    pub(super) fn is_circle_visible(&self) -> bool {
        self.accuracy_km.is_some_and(|km| {
            let (x, center_y) = to_map_point(self.longitude, self.latitude);
            let view = MapView::around((x, center_y), &self.accuracy_circle());
            let (_, edge_y) = to_map_point(self.longitude, self.latitude - to_degrees(f64::from(km) / EARTH_RADIUS_KM));
            edge_y - center_y >= VISIBLE_RADIUS_MIN * view.width
        })
    }
}

/// Draws the map as two SVGs, one over the other. With a marker, only the part around it is in view.
pub(super) fn draw_map(marker: Option<&MapMarker<'_>>, aria_label: &str) -> String {
    let circle = marker.map_or_else(Vec::new, MapMarker::accuracy_circle);
    let center = marker.map(|marker| to_map_point(marker.longitude, marker.latitude));
    let view = center.map_or(MapView::WORLD, |center| MapView::around(center, &circle));
    let view_box = format!("{:.0} {:.0} {:.0} {:.0}", view.left, view.top, view.width, view.height());
    let mut svg = format!(
        "<div class=\"map-box{}\"><svg class=\"world-map\" viewBox=\"{view_box}\" role=\"img\" aria-label=\"{aria_label}\"><path class=\"land\" d=\"{}\"/>",
        if marker.is_some() { " zoomed" } else { "" },
        svg_path("land")
    );
    if let Some(country) = marker.and_then(|marker| marker.country) {
        push_fmt(&mut svg, format_args!("<path class=\"visitor-country\" d=\"{}\"/>", svg_path(country)));
    }
    push_fmt(&mut svg, format_args!("<path class=\"borders\" d=\"{}\"/>", svg_path("borders")));
    if !circle.is_empty() {
        let points: Vec<_> = circle.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        push_fmt(&mut svg, format_args!("<path class=\"accuracy-circle\" d=\"M{}Z\"/>", points.join("L")));
    }
    svg.push_str("</svg>");
    if let Some((marker, (x, y))) = marker.zip(center) {
        let (left, top) = view.percent((x, y));
        // The label is next to the circle, toward the middle of the map.
        let distances = circle.iter().map(|(edge, _)| (edge - x).abs());
        let circle_radius = 100.0 * distances.fold(0.0, f64::max) / view.width;
        let (anchor, shift, label_x) =
            if left > 62.0 { ("end", -12, left - circle_radius) } else { ("start", 12, left + circle_radius) };
        push_fmt(
            &mut svg,
            format_args!(
                "<svg class=\"pin\" aria-hidden=\"true\"><circle class=\"dot\" cx=\"{left:.2}%\" cy=\"{top:.2}%\" r=\"5\"/>\
                 <text x=\"{label_x:.2}%\" y=\"{top:.2}%\" dx=\"{shift}\" dy=\"5\" text-anchor=\"{anchor}\">{}</text></svg>",
                marker.label
            ),
        );
    }
    svg.push_str("</div>");
    svg
}

fn push_fmt(svg: &mut String, arguments: std::fmt::Arguments<'_>) {
    svg.write_fmt(arguments).expect("writing to a String never fails");
}

/// An SVG path by name; empty for a country that is too small to draw.
fn svg_path(name: &str) -> &'static str {
    WORLD.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t')).unwrap_or_default()
}

/// Projects a coordinate to map units.
fn to_map_point(longitude: f64, latitude: f64) -> (f64, f64) {
    let scale = WIDTH / (2.0 * equal_earth(180.0, 0.0).0);
    let (x, y) = equal_earth(longitude, latitude);
    (WIDTH / 2.0 + x * scale, (equal_earth(0.0, TOP_LATITUDE).1 - y) * scale)
}

/// The Equal Earth projection (Šavrič, Patterson and Jenny, 2018).
fn equal_earth(longitude: f64, latitude: f64) -> (f64, f64) {
    const A: [f64; 4] = [1.340_264, -0.081_106, 0.000_893, 0.003_796];
    let m = 3.0_f64.sqrt() / 2.0;
    let theta = (m * to_radians(latitude).sin()).asin();
    let square = theta * theta;
    let sixth = square * square * square;
    let slope = A[0] + 3.0 * A[1] * square + sixth * (7.0 * A[2] + 9.0 * A[3] * square);
    let x = to_radians(longitude) * theta.cos() / (m * slope);
    let y = theta * (A[0] + A[1] * square + sixth * (A[2] + A[3] * square));
    (x, y)
}

fn to_radians(degrees: f64) -> f64 {
    degrees * PI / 180.0
}

fn to_degrees(radians: f64) -> f64 {
    radians * 180.0 / PI
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a point is inside a path. Its rings consist of a start point and relative steps.
    fn contains_point(path: &str, (x, y): (f64, f64)) -> bool {
        let mut is_inside = false;
        for ring in path.split('M').skip(1) {
            let (start, steps) = ring.trim_end_matches('z').split_once('l').expect("ring has a start and steps");
            let mut corners = vec![parse_pairs(start)[0]];
            for (right, down) in parse_pairs(steps) {
                let last = corners[corners.len() - 1];
                corners.push((last.0 + right, last.1 + down));
            }
            for (index, corner) in corners.iter().enumerate() {
                let next_corner = corners[(index + 1) % corners.len()];
                if (corner.1 > y) != (next_corner.1 > y)
                    && x < (next_corner.0 - corner.0) * (y - corner.1) / (next_corner.1 - corner.1) + corner.0
                {
                    is_inside = !is_inside;
                }
            }
        }
        is_inside
    }

    fn parse_pairs(text: &str) -> Vec<(f64, f64)> {
        let spaced = text.replace('-', " -");
        let numbers: Vec<f64> =
            spaced.split_whitespace().map(|number| number.parse().expect("coordinate is a number")).collect();
        numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }

    #[test]
    fn coordinates_project_into_their_country() {
        for (country, latitude, longitude) in [
            ("FR", 46.6, 2.5),
            ("US", 39.0, -98.0),
            ("BR", -10.0, -52.0),
            ("AU", -25.0, 134.0),
            ("RU", 62.0, 100.0),
            ("JP", 36.2, 138.2),
            ("ZA", -31.0, 22.5),
            ("IN", 22.0, 79.0),
        ] {
            assert!(contains_point(svg_path(country), to_map_point(longitude, latitude)), "{country}");
            assert!(contains_point(svg_path("land"), to_map_point(longitude, latitude)), "{country} is land");
            assert!(!contains_point(svg_path("FR"), to_map_point(longitude, latitude)) || country == "FR");
        }
        assert!(!contains_point(svg_path("land"), to_map_point(-40.0, 30.0)), "the Atlantic is not land");
        assert_eq!(svg_path("XX"), "");
    }

    #[test]
    fn map_paths_stay_under_30_kb() {
        assert!(svg_path("land").len() + svg_path("borders").len() < 30_000);
    }

    #[test]
    fn accuracy_circle_matches_its_radius() {
        let marker =
            |latitude, km| MapMarker { latitude, longitude: 2.0, accuracy_km: Some(km), country: None, label: "" };
        let at_equator = marker(0.0, 1000);
        let (north, south) =
            (at_equator.accuracy_circle()[0].1, at_equator.accuracy_circle()[CIRCLE_POINTS as usize / 2].1);
        let degree = to_map_point(2.0, -0.5).1 - to_map_point(2.0, 0.5).1;
        // 1,000 km are 9 degrees.
        assert!((south - north - 2.0 * 8.993 * degree).abs() < 1.0, "{north} to {south}");
        assert!(at_equator.is_circle_visible() && !marker(48.0, 10).is_circle_visible());
    }

    fn view(latitude: f64, longitude: f64, km: Option<u16>) -> (MapView, Vec<(f64, f64)>) {
        let marker = MapMarker { latitude, longitude, accuracy_km: km, country: None, label: "" };
        let circle = marker.accuracy_circle();
        (MapView::around(to_map_point(longitude, latitude), &circle), circle)
    }

    #[test]
    fn view_is_a_continent_around_the_marker_with_its_whole_circle() {
        for (latitude, longitude) in
            [(48.9, 2.4), (40.7, -74.0), (-33.9, 151.2), (1.3, 103.8), (64.1, -21.9), (-23.5, -46.6)]
        {
            for km in [None, Some(10), Some(500), Some(1500)] {
                let (view, circle) = view(latitude, longitude, km);
                assert!((CONTINENT_WIDTH..WIDTH).contains(&view.width), "{latitude} {km:?}: {}", view.width);
                assert!(view.left >= 0.0 && view.left + view.width <= WIDTH + 1e-6, "{latitude} {km:?}");
                assert!(view.top >= 0.0 && view.top + view.height() <= HEIGHT + 1e-6, "{latitude} {km:?}");
                let is_inside = |point| {
                    let (left, top) = view.percent(point);
                    (0.0..=100.0).contains(&left) && (0.0..=100.0).contains(&top)
                };
                assert!(is_inside(to_map_point(longitude, latitude)), "{latitude} {km:?}");
                let on_map = circle.iter().filter(|(x, y)| (0.0..=WIDTH).contains(x) && (0.0..=HEIGHT).contains(y));
                assert!(on_map.copied().all(is_inside), "{latitude} {km:?}");
            }
        }
        // Paris to Athens, Lisbon and Helsinki.
        let europe = view(48.9, 2.4, Some(10)).0;
        for (latitude, longitude) in [(38.0, 23.7), (38.7, -9.1), (60.2, 24.9)] {
            let (left, top) = europe.percent(to_map_point(longitude, latitude));
            assert!((0.0..=100.0).contains(&left) && (0.0..=100.0).contains(&top), "{latitude}");
        }
    }

    #[test]
    fn view_stays_on_the_map_at_its_edges_and_for_any_circle() {
        for (latitude, longitude) in [(90.0, 0.0), (-90.0, 180.0), (65.0, -179.9), (-17.7, 178.0), (0.0, 0.0)] {
            for km in [None, Some(0), Some(20_000), Some(u16::MAX)] {
                let (view, _) = view(latitude, longitude, km);
                assert!((CONTINENT_WIDTH..=WIDTH).contains(&view.width), "{latitude} {km:?}: {}", view.width);
                assert!((0.0..=WIDTH - view.width + 1e-6).contains(&view.left), "{latitude} {km:?}");
                assert!((0.0..=HEIGHT - view.height() + 1e-6).contains(&view.top), "{latitude} {km:?}");
            }
        }
    }

    #[test]
    fn map_without_location_has_no_marker() {
        let map = draw_map(None, "World map");
        assert!(map.contains("viewBox=\"0 0 2000 868\""), "the whole world");
        assert!(
            map.contains("class=\"land\"")
                && !map.contains("class=\"pin\"")
                && !map.contains("class=\"accuracy-circle\"")
        );
    }
}
