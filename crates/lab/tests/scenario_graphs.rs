//! Graphs and routes of scenarios: sizes, degrees, connectedness, repeatability, shortest paths.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use proptest::prelude::*;
use whimbrel_lab::scenario::graph::{
    BarabasiAlbert, Branches, Dumbbell, Graph, Grid, Line, RandomRegular, Ring, Shape, Star, Tree,
    Waxman,
};
use whimbrel_lab::scenario::network::Network;
use whimbrel_lab::scenario::node::Role;
use whimbrel_lab::scenario::route::{Choice, Routes, Weight, shortest_paths};
use whimbrel_lab::scenario::{Overrides, Scenario};

fn build(shape: &Shape, seed: u64) -> Graph {
    shape.build("n", Path::new(""), seed).unwrap()
}

fn degrees(graph: &Graph) -> Vec<usize> {
    graph.neighbours().iter().map(Vec::len).collect()
}

/// Checks that the graph has no loops, distinct names, and one part.
fn assert_sound(graph: &Graph) {
    assert!(graph.edges.iter().all(|edge| edge.ends.0 != edge.ends.1));
    let mut names = graph.nodes.clone();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), graph.nodes.len());
    assert_eq!(graph.parts().len(), 1);
}

fn assert_simple(graph: &Graph) {
    let mut pairs: Vec<_> = graph
        .edges
        .iter()
        .map(|edge| (edge.ends.0.min(edge.ends.1), edge.ends.0.max(edge.ends.1)))
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), graph.edges.len());
}

proptest! {
    #[test]
    fn graphs_without_chance_have_their_sizes(nodes in 3usize..40, other in 3usize..8) {
        let line = build(&Shape { line: Some(Line { nodes }), ..Shape::default() }, 1);
        prop_assert_eq!((line.nodes.len(), line.edges.len()), (nodes, nodes - 1));
        prop_assert_eq!(degrees(&line).iter().filter(|degree| **degree == 1).count(), 2);
        let ring = build(&Shape { ring: Some(Ring { nodes }), ..Shape::default() }, 1);
        prop_assert!(ring.edges.len() == nodes && degrees(&ring).iter().all(|degree| *degree == 2));
        let star = build(&Shape { star: Some(Star { leaves: nodes }), ..Shape::default() }, 1);
        prop_assert_eq!(degrees(&star)[0], nodes);
        let pairs = build(&Shape { dumbbell: Some(Dumbbell { pairs: nodes }), ..Shape::default() }, 1);
        prop_assert_eq!((pairs.nodes.len(), pairs.edges.len()), (2 * nodes + 2, 2 * nodes + 1));
        let grid = |torus| Shape { grid: Some(Grid { columns: nodes, rows: other, torus }), ..Shape::default() };
        let (flat, torus) = (build(&grid(false), 1), build(&grid(true), 1));
        prop_assert_eq!(flat.edges.len(), 2 * nodes * other - nodes - other);
        prop_assert!(degrees(&torus).iter().all(|degree| *degree == 4));
        for graph in [line, ring, star, pairs, flat, torus] {
            assert_sound(&graph);
            assert_simple(&graph);
        }
    }

    #[test]
    fn a_tree_has_all_its_levels(branches in 1usize..5, depth in 1u32..5) {
        let tree = build(&Shape { tree: Some(Tree { branches: Branches::Equal(branches), depth: Some(depth) }), ..Shape::default() }, 1);
        let leaves = branches.pow(depth);
        prop_assert_eq!(tree.edges.len(), tree.nodes.len() - 1);
        let alone = degrees(&tree).iter().skip(1).filter(|degree| **degree == 1).count();
        prop_assert_eq!(alone, leaves);
        assert_sound(&tree);
        let listed = Tree { branches: Branches::Levels(vec![branches; depth as usize]), depth: None };
        prop_assert_eq!(build(&Shape { tree: Some(listed), ..Shape::default() }, 1), tree);
    }

    #[test]
    fn a_tree_may_have_other_branches_on_each_level(levels in prop::collection::vec(1usize..5, 1..5)) {
        let shape = Tree { branches: Branches::Levels(levels.clone()), depth: None };
        let tree = build(&Shape { tree: Some(shape), ..Shape::default() }, 1);
        assert_sound(&tree);
        // Of a node of level L the degree is its branches, and one more below the root.
        let mut nodes = 1;
        let mut expected = Vec::new();
        for (level, branches) in levels.iter().enumerate() {
            expected.extend(vec![branches + usize::from(level > 0); nodes]);
            nodes *= branches;
        }
        expected.extend(vec![1; nodes]);
        prop_assert_eq!(degrees(&tree), expected);
    }

    #[test]
    fn random_graphs_are_connected_and_the_same_for_the_same_seed(seed: u64, nodes in 12usize..60, degree in 2usize..5) {
        let regular = RandomRegular { nodes: nodes * 2, degree };
        let growing = BarabasiAlbert { nodes, links: degree };
        let waxman = Waxman { nodes, alpha: 0.4, beta: 0.2, side: None };
        for shape in [
            Shape { random_regular: Some(regular), ..Shape::default() },
            Shape { barabasi_albert: Some(growing), ..Shape::default() },
            Shape { waxman: Some(waxman), ..Shape::default() },
        ] {
            let graph = build(&shape, seed);
            assert_sound(&graph);
            assert_simple(&graph);
            prop_assert_eq!(&graph, &build(&shape, seed));
            prop_assert_ne!(&graph, &build(&shape, seed.wrapping_add(1)));
        }
        let regular = build(&Shape { random_regular: Some(regular), ..Shape::default() }, seed);
        prop_assert!(degrees(&regular).iter().all(|found| *found == degree));
        let growing = build(&Shape { barabasi_albert: Some(growing), ..Shape::default() }, seed);
        prop_assert_eq!(growing.edges.len(), degree * (degree + 1) / 2 + (nodes - degree - 1) * degree);
        prop_assert!(degrees(&growing).iter().all(|found| *found >= degree));
    }

    /// The reference is the table of all distances by Floyd and Warshall. Next hops lie on shortest
    /// paths and lead there; all equal ones are found; the k shortest paths are sorted, loopless
    /// and begin with the shortest.
    #[test]
    fn routes_are_shortest(seed: u64, nodes in 4usize..14, from in 0usize..14, to in 0usize..14) {
        let network = random_network(seed, nodes);
        let (from, to) = (from % nodes, to % nodes);
        let cost = |link: usize| network.links[link].cost.unwrap_or(1);
        let mut distance = vec![vec![u64::MAX / 4; nodes]; nodes];
        (0..nodes).for_each(|node| distance[node][node] = 0);
        for (index, link) in network.links.iter().enumerate() {
            let (a, b) = link.ends;
            distance[a][b] = distance[a][b].min(cost(index));
            distance[b][a] = distance[a][b];
        }
        for k in 0..nodes { for a in 0..nodes { for b in 0..nodes {
            distance[a][b] = distance[a][b].min(distance[a][k] + distance[k][b]);
        } } }
        let one = Routes::derived(Choice::Shortest, Weight::Cost, 1).towards(&network, to, Role::NdnRouter);
        let equal = Routes::derived(Choice::Equal, Weight::Cost, 1).towards(&network, to, Role::NdnRouter);
        for node in (0..nodes).filter(|node| *node != to) {
            prop_assert_eq!(one[node].len(), 1);
            for hop in &equal[node] {
                prop_assert_eq!(cost(hop.link) + distance[hop.to][to], distance[node][to]);
            }
            let all = network.at(node).filter(|(link, next)| cost(*link) + distance[*next][to] == distance[node][to]);
            prop_assert_eq!(equal[node].len(), all.count());
            prop_assert_eq!(one[node][0], equal[node][0]);
        }
        if from != to {
            let paths = shortest_paths(&network, Weight::Cost, from, to, 4);
            prop_assert_eq!(paths[0].cost, distance[from][to]);
            prop_assert!(paths.windows(2).all(|pair| pair[0].cost <= pair[1].cost && pair[0] != pair[1]));
            for path in &paths {
                let mut seen = path.nodes.clone();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), path.nodes.len());
                prop_assert_eq!(path.links.iter().map(|link| cost(*link)).sum::<u64>(), path.cost);
                prop_assert_eq!((path.nodes.first(), path.nodes.last()), (Some(&from), Some(&to)));
            }
        }
    }
}

/// Routers with links of random costs.
fn random_network(seed: u64, nodes: usize) -> Network {
    let text = format!(
        "seed = {}\nloads.x = {{ from = \"n1\", to = \"n2\", file = \"1 MB\" }}\n\
         graph = {{ role = \"ndn-router\", waxman = {{ nodes = {nodes}, alpha = 0.7, beta = 0.5 }} }}\n",
        seed >> 1
    );
    let scenario = Scenario::parse(Path::new("x.toml"), &text, Overrides::default()).unwrap();
    let mut network = scenario.settings[0].plan.network.clone();
    for (index, link) in network.links.iter_mut().enumerate() {
        link.cost = Some(1 + (seed >> (index % 60)) % 5);
    }
    network
}

#[test]
fn an_imported_graph_has_the_files_links_and_the_scenarios_rest() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("net.txt"),
        "a b delay=3ms\nb c rate=7Mbit/s\nx y\n",
    )
    .unwrap();
    let text = "loads.f = { from = \"a\", to = \"c\", file = \"1 MB\" }\n\
        [graph]\nedge_list = \"net.txt\"\nrole = \"ndn-router\"\nlink = { rate = \"5 Mbit/s\", queue = \"50 packets\" }\n\
        [links]\na-b = { loss = \"2 %\" }\n";
    let path = folder.path().join("s.toml");
    let read = |text: &str| Scenario::parse(&path, text, Overrides::default());
    let error = read(text).unwrap_err().to_string();
    assert!(
        error.contains("s.toml:3: graph.edge_list: the graph is in 2 parts"),
        "{error}"
    );
    let scenario = read(&text.replace("[links]", "largest_part = true\n[links]")).unwrap();
    let network = &scenario.settings[0].plan.network;
    assert_eq!((network.nodes.len(), network.links.len()), (3, 2));
    let ab = &network.links[network.link("a-b").unwrap()].forward;
    assert_eq!(
        (ab.delay.as_millis(), ab.loss),
        (3, whimbrel_sim::link::Loss::Independent(0.02))
    );
    assert_eq!(ab.rate, whimbrel_sim::link::Rate::Fixed(5_000_000));
    let bc = &network.links[network.link("b-c").unwrap()].forward;
    assert_eq!(bc.rate, whimbrel_sim::link::Rate::Fixed(7_000_000));
}

#[test]
fn given_routes_replace_derived_ones() {
    let text = "loads.f = { from = \"n1\", to = \"n3\", file = \"1 MB\" }\n\
        graph = { role = \"ndn-router\", ring = { nodes = 4 } }\n\
        routes = { by = \"hops\", given = [{ path = [\"n2\", \"n1\", \"n4\"] }] }\n";
    let scenario = Scenario::parse(Path::new("x.toml"), text, Overrides::default()).unwrap();
    let plan = &scenario.settings[0].plan;
    let routes = plan.routes.towards(&plan.network, 3, Role::NdnRouter);
    assert_eq!(
        (routes[1][0].to, routes[0][0].to, routes[2][0].to),
        (0, 3, 3)
    );
}

/// Neither back end can run both: a role must not be dropped without a word.
#[test]
fn a_node_that_is_a_host_and_a_router_is_refused() {
    let text = "nodes = { a = \"host\", b = [\"router\", \"host\"] }\n\
        [links]\nwire = { between = [\"a\", \"b\"] }\n\
        [loads]\nfilm = { from = \"a\", to = \"b\", file = \"1 MB\" }\n";
    let read = Scenario::parse(Path::new("a.toml"), text, Overrides::default());
    let faults = read.unwrap_err().to_string();
    assert!(
        faults.contains("nodes.b: a node is a router or a host, not both"),
        "{faults}"
    );
}
