# The application of weir's lab behind puma. A path says what its request takes:
# /.weir/work/MEAN_US/LAW/BURN_US/PATH, as of `weir serve --bench-endpoints`. LAW may have a seed,
# LAW:SEED.

require "openssl"

BODY = "x" * 1024

# Does a fixed amount of work, as a request is: not a time on a clock that stands still or runs on
# while others have the processor.
def work(steps)
  return unless steps.positive?

  OpenSSL::KDF.pbkdf2_hmac("weir", salt: "lab", iterations: steps, length: 32, hash: "sha256")
end

# Returns the best of several short runs: the one that was disturbed least.
def steps_per_us
  runs = 20.times.map do
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    began = Process.clock_gettime(clock, :nanosecond)
    work(1000)
    1000 * 1000.0 / [Process.clock_gettime(clock, :nanosecond) - began, 1].max
  end
  runs.max
end

STEPS_PER_US = steps_per_us

STRATA = 64

# Takes the lowest number that no other worker has. Its lock ends with the worker.
def worker_lock
  (0..).each do |number|
    file = File.open("worker-#{number}", File::RDWR | File::CREAT)
    return [file, number] if file.flock(File::LOCK_EX | File::LOCK_NB)

    file.close
  end
end

LOCK, NUMBER = worker_lock

# Returns the random numbers between 0 and 1 of this worker from a seed, without end: of each 64 in a
# row one is in each 64th. Without a seed, those of the process, each drawn alone.
def shares(seed)
  own = seed ? Random.new((seed.to_i << 16) + NUMBER) : Random.new
  Enumerator.new do |numbers|
    loop do
      parts = (0...(seed ? STRATA : 1)).to_a.shuffle(random: own)
      parts.each { |part| numbers << ((part + ((own.rand(2**32) + 0.5) / 2**32)) / parts.size) }
    end
  end
end

SHARES = Hash.new { |known, seed| known[seed] = shares(seed) }

# Returns the number of standard deviations that a share of a normal distribution does not exceed.
def normal_quantile(share)
  (-9.0..9.0).bsearch { |deviations| Math.erfc(-deviations / Math.sqrt(2)) / 2 >= share } || 9.0
end

# Draws a multiple of the mean.
def factor(law, seed = nil)
  return 1.0 if law == "fixed"

  share = SHARES[seed].next
  return -Math.log(1 - share) if law == "exponential"

  variance = Math.log(10)
  Math.exp((Math.sqrt(variance) * normal_quantile(share)) - (variance / 2))
end

$stdout.puts "weir lab: a worker is ready"
$stdout.flush

run lambda { |environment|
  mean_us, law, burn_us = environment["PATH_INFO"].split("/")[3, 3]
  drawn = factor(*law.split(":"))
  sleep((mean_us.to_i - burn_us.to_i) * drawn / 1e6)
  work((burn_us.to_i * drawn * STEPS_PER_US).to_i)
  [200, { "Content-Type" => "text/plain", "Content-Length" => BODY.bytesize.to_s }, [BODY]]
}
