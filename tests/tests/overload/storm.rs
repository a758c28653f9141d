//! A storm over the real server, in every set-up: waves of clients that connect and disconnect in
//! every possible way, while honest clients are answered byte by byte; afterwards all counts must
//! balance. HTTP semantics are in `http.rs`, single clients in `behaviour.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use weir_tests::files::Served;
use weir_tests::mutate::Xorshift;
use weir_tests::server::HURRIED;
use weir_tests::wait::{WhenDone, until};
use weir_tests::{Client, Root, Server, Setup, assert_same, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    whoever_stays_is_answered_and_the_books_balance,
    two_thousand_who_come_and_go_at_random_hurt_nobody_else,
}

const WAVES: usize = 12;
const HONEST_ROUNDS: usize = 40;

/// A server on TCP and on a Unix socket, with the files it serves.
struct Scene {
    server: Server,
    small: Served,
    large: Served,
}

impl Scene {
    fn start(setup: &Setup, root: &Root) -> Self {
        let small = root.write_noise("small", 1448);
        let large = root.write_noise("large", 600_000);
        let unix = format!("unix:{}", root.outside().join("weir.socket").display());
        let options = ["--listen", "127.0.0.1:0", "--listen", &unix];
        let server = setup.serve(root, &[&HURRIED[..], &options].concat());
        Self { server, small, large }
    }

    /// Connects to the two addresses in turn.
    fn connect(&self, index: usize) -> Client {
        let addresses = &self.server.addresses;
        Client::connect(&addresses[index % addresses.len()])
    }

    fn request(&self) -> String {
        request("GET", &self.small.target, &[])
    }

    /// Runs a wave of clients that connect, send something or nothing, and disconnect in quick
    /// succession, so that the server sees them between two of its waits.
    fn leave_in_a_wave(&self, wave: usize) {
        let request = self.request();
        let half = &request[..request.len() / 2];
        for index in 0..24 {
            let mut client = self.connect(index / 6 + wave);
            // What is sent to a server that lets go first may fail, and that is the sender's loss.
            match index % 6 {
                0 => client.reset(),
                1 => drop(client),
                2 => drop(client.try_send(half)),
                3 => {
                    let _ = client.try_send(half);
                    client.reset();
                }
                4 => {
                    let _ = client.try_send(&request);
                    client.reset();
                }
                _ => {
                    let _ = client.try_send(self.large_request());
                    let _ = client.head();
                    client.reset();
                }
            }
        }
    }

    fn large_request(&self) -> String {
        request("GET", &self.large.target, &[])
    }

    /// Sends a request in two pieces, with a close of another connection between them, whose
    /// descriptor number is free for the next.
    fn send_across_a_close(&self, wave: usize) {
        let request = self.request();
        let (first, second) = request.split_at(1 + wave % (request.len() - 1));
        let mut staying: Vec<_> = (0..8).map(|index| self.connect(index)).collect();
        let mut leaving: Vec<_> = (0..8).map(|index| self.connect(index)).collect();
        for (client, other) in staying.iter_mut().zip(&mut leaving) {
            client.send(first);
            let _ = other.try_send(first);
        }
        for (client, other) in staying.iter_mut().zip(leaving) {
            other.reset();
            client.send(second);
        }
        for mut client in staying {
            assert_same(&client.reply().body, &self.small.body, "the body");
        }
    }

    /// Pipelines requests, and shuts down the client's side behind them.
    fn pipeline_and_finish(&self, wave: usize) {
        let mut client = self.connect(wave);
        client.send([self.request(), self.large_request(), self.request()].concat());
        client.finish_sending();
        for file in [&self.small, &self.large, &self.small] {
            assert_same(&client.reply().body, &file.body, "the body");
        }
        assert!(client.is_closed());
    }

    /// Sends honest requests on persistent connections and on new ones. Returns how many were
    /// answered.
    fn be_honest(&self, calm: &AtomicBool) -> usize {
        let mut staying = [self.connect(0), self.connect(1)];
        let mut rounds = 0;
        while rounds < HONEST_ROUNDS || !calm.load(Ordering::Relaxed) {
            let file = if rounds % 8 == 7 { &self.large } else { &self.small };
            assert_same(&staying[rounds % 2].get(&file.target).body, &file.body, "the body");
            assert_same(&self.connect(rounds / 2).get(&file.target).body, &file.body, "the body");
            rounds += 1;
        }
        2 * rounds
    }

    /// Runs a client that acts at random, and disconnects.
    fn come_and_go(&self, random: &mut Xorshift) {
        let mut client = self.connect(random.below(2));
        let requests = self.request().repeat(random.below(4)) + &self.large_request();
        // Nothing, a part of a request, whole ones, or all but the last bytes of the last.
        let said = &requests[..random.below(requests.len() + 1)];
        let _ = client.try_send(said);
        if random.below(3) == 0 {
            client.finish_sending();
        }
        for _ in 0..random.below(3).min(said.matches("\r\n\r\n").count()) {
            let _ = client.head();
        }
        if random.below(2) == 0 {
            client.reset();
        }
    }

    fn rage(&self) {
        for wave in 0..WAVES {
            self.leave_in_a_wave(wave);
            self.send_across_a_close(wave);
            self.pipeline_and_finish(wave);
        }
    }
}

/// Runs a storm over a server, and checks the counts afterwards.
fn storm(setup: &Setup, rage: impl FnOnce(&Scene)) {
    let root = Root::new();
    let scene = Scene::start(setup, &root);
    let calm = AtomicBool::new(false);
    let served = scope(|scope| {
        let honest = scope.spawn(|| scene.be_honest(&calm));
        {
            let _done = WhenDone(&calm);
            rage(&scene);
        }
        honest.join().unwrap() as u64
    });
    until("every connection was closed", || scene.server.open_connections() == 0);
    let stats = scene.server.stop_cleanly().stats();
    let total = |name: &str| stats["total"][name].as_u64().unwrap();
    assert!(total("replies") >= served, "{stats}");
    // A request whose client has gone has no reply.
    assert!(total("replies") + total("replies_cut") <= total("requests"), "{stats}");
}

fn whoever_stays_is_answered_and_the_books_balance(setup: &Setup) {
    storm(setup, Scene::rage);
}

fn two_thousand_who_come_and_go_at_random_hurt_nobody_else(setup: &Setup) {
    storm(setup, |scene| {
        scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || {
                    let mut random = Xorshift::new(seed);
                    (0..500).for_each(|_| scene.come_and_go(&mut random));
                });
            }
        });
    });
}
