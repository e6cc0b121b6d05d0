# Starts the API of rocket-rides-atomic as it is. Stripe's library is replaced by a call of the
# provider, with the idempotency key that the API passes to it.
require "json"
require "net/http"

$LOADED_FEATURES << "stripe.rb" # config.rb requires it

module Stripe
  class StripeError < StandardError; end
  class CardError < StripeError; end

  class << self
    attr_accessor :api_key
  end

  class Charge
    Created = Struct.new(:id)

    def self.create(params, options)
      body = { amount: params[:amount], account: params[:customer], card: "visa", delay_ms: 150 }
      response = Net::HTTP.post(URI("#{ENV["PROVIDER"]}/charges"), JSON.generate(body),
        "Content-Type" => "application/json", "Idempotency-Key" => options[:idempotency_key])
      answered = JSON.parse(response.body)
      raise CardError, answered["error"] if response.code == "402"
      raise StripeError, answered["error"] if response.code != "201"
      Created.new(answered["id"])
    end
  end
end

ENV["RACK_ENV"] = "production"
ENV["STRIPE_API_KEY"] = "none"
require_relative "source/rocket-rides-atomic/config"
DB.extension(:connection_validator)
if !DB.table_exists?(:users)
  DB.run(File.read(File.join(__dir__, "source/rocket-rides-atomic/schema.sql")))
  DB[:users].multi_insert([
    { email: "one@example.com", stripe_customer_id: "1" },
    { email: "two@example.com", stripe_customer_id: "2" },
  ])
end
require_relative "source/rocket-rides-atomic/api"

# With 90 seconds, 20 kills would last half an hour.
Object.send(:remove_const, :IDEMPOTENCY_KEY_LOCK_TIMEOUT)
IDEMPOTENCY_KEY_LOCK_TIMEOUT = 2

# The response of a ride has no id, so the check finds the charge in this field.
API.after do
  if response.status == 201
    key = IdempotencyKey.first(user_id: authenticate_user(request).id, idempotency_key: validate_idempotency_key(request))
    headers "Charge" => Ride.first(idempotency_key_id: key.id).stripe_charge_id
  end
end

address, port = ENV["ADDR"].split(":")
API.run!(bind: address, port: Integer(port), environment: :production, quiet: true)
