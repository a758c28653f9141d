# The application of weir's lab behind puma. A path says what its request takes:
# /.weir/work/MEAN_US/LAW/BURN_US/PATH, as of `weir serve --bench-endpoints`.

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

# Draws a multiple of the mean.
def factor(law)
  case law
  when "exponential"
    -Math.log(1 - rand)
  when "heavy-tailed"
    variance = Math.log(10)
    normal = Math.sqrt(-2 * Math.log(1 - rand)) * Math.cos(2 * Math::PI * rand)
    Math.exp((Math.sqrt(variance) * normal) - (variance / 2))
  else
    1.0
  end
end

$stdout.puts "weir lab: a worker is ready"
$stdout.flush

run lambda { |environment|
  mean_us, law, burn_us = environment["PATH_INFO"].split("/")[3, 3]
  drawn = factor(law)
  sleep((mean_us.to_i - burn_us.to_i) * drawn / 1e6)
  work((burn_us.to_i * drawn * STEPS_PER_US).to_i)
  [200, { "Content-Type" => "text/plain", "Content-Length" => BODY.bytesize.to_s }, [BODY]]
}
